package bridge

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/core/encode"
	planning "github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// TestRecordedSelection: a collection whose resource is not served goes on with its recorded selectors, so its events name these, and not those
// that its entry has by now.
func TestRecordedSelection(t *testing.T) {
	store, err := file.OpenMem(identity)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	p := newPipeline(pipelineOptions{Identity: identity, Sink: &nowhere{}, Store: store, Log: zap.NewNop(), Metrics: NewMetrics(prometheus.NewRegistry()), reader: &scripted{}})
	c := planning.Collection{
		Selection: "labels=app=old&fields=metadata.namespace!=a version=v1",
		Options:   CollectionOptions{Settings: encode.Settings{Filter: "object.metadata.name != 'a'"}},
	}
	c.Target.Collection = event.Collection{Group: "example.com", Resource: "widgets", LabelSelector: "app=new", MetadataOnly: true}
	properties, err := p.wanted(&c).Properties()
	if err != nil {
		t.Fatal(err)
	}
	want := event.Selection{Labels: "app=old", Fields: "metadata.namespace!=a", Filtered: true, MetadataOnly: true}
	if properties.Selection != c.Selection || properties.Contents != want {
		t.Errorf("the properties are %+v, want the selection %s with %+v", properties, c.Selection, want)
	}
}
