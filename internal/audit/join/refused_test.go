package join

import (
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/audit"
)

// The API server stores an object, cannot return it in the form that the client asks for, and answers with an error. A patch of another user that
// changed nothing is not the only request that is possible then.
func TestStoredDespiteTheError(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	object := Object{"apps", "deployments", "shop", "web"}
	answer := audit.Answer{Namespace: "shop", Name: "web", UID: "u", Version: "7", Bare: true}
	for code, exact := range map[int]bool{400: false, 406: false, 418: false, 409: true, 422: true} {
		for _, complete := range []bool{true, false} {
			j := New(Options{Complete: complete, Settle: time.Minute, Keep: time.Hour, MaxOpen: time.Minute, MaxChanges: 10, MaxRequests: 10})
			j.Floor(Marks{0}, "5", now)
			number := uint64(0)
			patch := func(user string, code int, answer *audit.Answer) {
				r := audit.Record{
					ID: user, Stage: audit.Received, Level: audit.RequestResponse, Verb: "patch", Group: object.Group, Resource: object.Resource,
					Namespace: object.Namespace, Name: object.Name, Received: now, Reached: now, Actor: audit.Actor{User: audit.User{Name: user}},
				}
				end := r
				end.Stage, end.Code, end.Decision, end.Answer = audit.Complete, code, "allow", answer
				j.Read(0, number+1, &r, now)
				j.Read(0, number+2, &end, now)
				number += 2
			}
			patch("mallory", code, nil)
			patch("controller", 200, &answer)
			j.Change(Change{ID: 1, Object: object, UID: "u", Kind: Changed, Version: "7", Before: "5", Seen: Marks{number}, At: now})
			j.Settle(now.Add(2 * time.Minute))
			verdicts := j.Take()
			if len(verdicts) != 1 {
				t.Fatalf("%d verdicts", len(verdicts))
			}
			v := verdicts[0]
			if v.Exact != nil != (exact && complete) || !exact && len(v.Candidates) != 2 {
				t.Errorf("code %d, complete records %t: exact is %v, with %d candidates", code, complete, v.Exact, len(v.Candidates))
			}
		}
	}
}
