package file

import (
	"path/filepath"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/checkpoint/checkpointtest"
	"github.com/kubebridge/kubebridge/pkg/event"
)

var testIdentity = event.Identity{Bridge: "kubebridge", Cluster: "prod", ClusterUID: "5b8f1c34-7a2e-4c8a-9f39-0e1f8f2f4a11", Sink: "audit"}

func openTest(place string) (checkpointtest.Store, error) {
	return Open(place, testIdentity, Options{})
}

func TestMain(m *testing.M) { checkpointtest.Main(m, openTest) }

func TestSuite(t *testing.T) {
	checkpointtest.Run(t, checkpointtest.Config{
		Open:  openTest,
		Place: func(t *testing.T) string { return filepath.Join(t.TempDir(), "checkpoint", "audit") },
	})
}

func TestSuiteMem(t *testing.T) {
	checkpointtest.Run(t, checkpointtest.Config{
		Open:     func(string) (checkpointtest.Store, error) { return OpenMem(testIdentity) },
		Place:    func(*testing.T) string { return "" },
		Volatile: true,
	})
}
