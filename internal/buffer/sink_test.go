package buffer

import (
	"testing"

	"go.uber.org/zap"
)

// A cluster in which namespaces come and go does not cost memory for each collection that there ever was.
func TestForgottenCollectionsAreNotKept(t *testing.T) {
	s := NewSink(nil, "audit", zap.NewNop())
	s.Allow("configmaps", true, false)
	if !s.Allows("configmaps") {
		t.Error("the collection is not buffered")
	}
	s.Forget("configmaps")
	if len(s.allowed) > 0 {
		t.Errorf("kept: %v", s.allowed)
	}
}
