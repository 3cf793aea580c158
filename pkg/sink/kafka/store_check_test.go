package kafka

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The error of a check says what Kafka refused, not which request the client made.
func TestCheckSaysWhatIsRefused(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	b.ControlKey(int16(kmsg.FindCoordinator), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
		for _, id := range req.(*kmsg.FindCoordinatorRequest).CoordinatorKeys {
			one := kmsg.NewFindCoordinatorResponseCoordinator()
			one.Key, one.ErrorCode = id, kerr.TransactionalIDAuthorizationFailed.Code
			resp.Coordinators = append(resp.Coordinators, one)
		}
		return resp, nil, true
	})
	s, _, err := CheckStore(t.Context(), storeOptions(t, b))
	if s != nil || err == nil || !strings.Contains(err.Error(), "allow WRITE and DESCRIBE on the transactional id") || strings.Contains(err.Error(), "shard") {
		t.Errorf("Check: %v, want what is not allowed, in few words", err)
	}
}
