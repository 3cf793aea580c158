package bridge

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/internal/buffer"
	"github.com/kubebridge/kubebridge/pkg/source"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// Only an error of the server may be logged as one.
func TestOutageJudges(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, c := range []struct {
		name      string
		err       error
		lost, own bool
	}{
		{"nothing", nil, false, false},
		{"the history is gone", fmt.Errorf("watch: %w", source.ErrExpired), false, false},
		{"the history is gone, as the server says it", apierrors.NewResourceExpired("too old"), false, false},
		{"no such resource", fmt.Errorf("crs: %w", discovery.ErrNoResource), false, true},
		{"forbidden", fmt.Errorf("list: %w", apierrors.NewForbidden(pods, "", errors.New("no"))), false, true},
		{"overloaded", apierrors.NewTooManyRequests("later", 1), true, false},
		{"one resource, whose webhook is dead", &source.ResourceError{Err: apierrors.NewTooManyRequests("storage is (re)initializing", 1)}, false, true},
		{"refused credentials", fmt.Errorf("%w: %w", source.ErrCredentials, apierrors.NewUnauthorized("no")), true, false},
		{"a connection that breaks", errors.New("watch: the connection broke"), true, false},
		{"both a broken connection and a refusal", errors.Join(errors.New("broken"), apierrors.NewForbidden(pods, "", errors.New("no"))), false, true},
		{"the buffer's disk, in a replay", fmt.Errorf("%w: %w: %w", buffer.ErrEnd, buffer.ErrUnreadable, syscall.EIO), false, true},
		{"the buffer's disk, in a search", fmt.Errorf("search the buffer: %w: %w", buffer.ErrUnreadable, syscall.EMFILE), false, true},
	} {
		if lost, own := newOutage(zap.NewNop()).judge(c.err); lost != c.lost || own != c.own {
			t.Errorf("%s: lost %t, own %t", c.name, lost, own)
		}
	}
}

// A restart of the API server is logged in one line, however many reads it interrupts. An error of a single resource
// is logged for that resource, and does not delay the message that the server is back.
func TestOutageIsSaidOnce(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	o := newOutage(zap.New(core))
	pods := schema.GroupResource{Resource: "pods"}
	broken, refused := errors.New("watch: the connection broke"), errors.New("dial: connection refused")
	expired := fmt.Errorf("watch: %w", apierrors.NewResourceExpired("too old"))
	forbidden := fmt.Errorf("list: %w", apierrors.NewForbidden(pods, "", errors.New("no")))
	for i, step := range []struct {
		who string
		err error
		own bool
	}{
		{"secrets", forbidden, true},
		{"crs", fmt.Errorf("crs: %w", discovery.ErrNoResource), true},
		{"a", broken, false},
		{"b", broken, false},
		{"a", refused, false},
		{"catalog", errors.Join(broken, expired), false},
		{"b", apierrors.NewServiceUnavailable("starting"), false},
		{"secrets", forbidden, true},
		{"a", expired, false},
		{"b", nil, false},
		{"catalog", expired, false}, // the server is back
		{"a", nil, false},
		{"a", expired, false},
		{"b", nil, false},
		{"secrets", nil, false},
		{"a", broken, false}, // the connection breaks again
		{"a", nil, false},
	} {
		if own := o.met(step.who, step.err); own != step.own {
			t.Errorf("step %d: %s met %v: its own %t", i, step.who, step.err, own)
		}
	}
	var said []string
	for _, l := range logs.All() {
		said = append(said, fmt.Sprint(l.Message[:len("the API server is back")], l.ContextMap()["interrupted"]))
	}
	if want := []string{"the API server is lost<nil>", "the API server is back3", "the API server is lost<nil>", "the API server is back1"}; !slices.Equal(said, want) {
		t.Errorf("said is %q, want %q", said, want)
	}
}

// Credentials that the API server does not accept are no lost API server: log, advice and /readyz say so, until they are accepted.
func TestRefusedCredentials(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	o := newOutage(zap.New(core))
	for _, step := range []struct {
		err  error
		want bool
	}{{nil, false}, {errors.New("broken"), false}, {source.ErrCredentials, true}, {source.ErrCredentials, true}, {nil, false}} {
		if o.met("a", step.err); o.refuses() != step.want {
			t.Errorf("%v: refused %t", step.err, o.refuses())
		}
	}
	all := logs.All()
	if len(all) != 3 {
		t.Fatalf("it says %v", all)
	}
	says := all[1] // the outage began with a broken connection
	if says.Message != "the API server does not accept the credentials; trying again" || says.ContextMap()["advice"] != renewCredentials {
		t.Errorf("it says %q, %v", says.Message, says.ContextMap())
	}
}
