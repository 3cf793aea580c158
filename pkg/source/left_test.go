package source

import (
	"fmt"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// TestListSaysWhatIsLeft: while a long list is read, the state shows how many objects
// are left, where the server says it, and none afterwards.
func TestListSaysWhatIsLeft(t *testing.T) {
	counted := func(left int, more, item string) answer {
		return text200(fmt.Sprintf(
			`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"remainingItemCount":%d,"resourceVersion":"100","continue":%q},"items":[%s]}`, left, more, item))
	}
	s := newStub(t,
		[]answer{counted(2, "t1", item("a", "5")), counted(1, "t2", item("b", "6")), pageOf("100", "", item("c", "7"))},
		[]answer{open(bookmark("110"))})
	r := run(t, Options{Client: inMemory(t, s)}, event.Position{}, nil)
	for i, want := range []int64{2, 1, 0} {
		if st := r.awaitState(Reconciling, i+2); st.Left == nil || *st.Left != want { // the first is of the list's begin
			t.Errorf("page %d: left %v, want %d", i+1, st.Left, want)
		}
	}
	if st := r.awaitState(Watching, 1); st.Left != nil {
		t.Errorf("a watch shows what is left of a list: %d", *st.Left)
	}
	r.stop()
}
