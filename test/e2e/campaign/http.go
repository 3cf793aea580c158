package campaign

import (
	"context"
	"net/http"
	"time"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/faultproxy"
)

// httpTimeout is the time after which the bridge gives an answer up.
const httpTimeout = 3 * time.Second

// routesRefused is the begin of the names of faults that suspend routes.
const routesRefused = "receiver refuses routes"

func (w *world) onHTTP() (*busUnderTest, error) {
	receiver, err := bus.StartReceiver()
	if err != nil {
		return nil, err
	}
	proxy, err := faultproxy.Start(receiver.Addr())
	if err != nil {
		return nil, err
	}
	// answers lets some of the requests of a time have one of the answers.
	answers := func(name string, some ...bus.Answer) fault {
		return fault{name: name, hurts: true, do: func(ctx context.Context, r *chance) error {
			drawn := newChance(r.Uint64(), 0) // r is the nemesis' own
			receiver.Decide(func() bus.Answer {
				if drawn.IntN(2) == 0 {
					return bus.Answer{Status: http.StatusOK}
				}
				return some[drawn.IntN(len(some))]
			})
			r.wait(ctx, 2*time.Second)
			receiver.Decide(nil)
			return nil
		}}
	}
	faults := append(connection("bus", proxy),
		answers("receiver closes connections", bus.Answer{}, bus.Answer{Keep: true}),
		answers("receiver answers 5xx and 429", bus.Answer{Status: 500}, bus.Answer{Status: 503, Keep: true}, bus.Answer{Status: 429}),
		answers("receiver answers late", bus.Answer{Status: 200, Delay: httpTimeout * 3 / 2}, bus.Answer{Status: 200, Delay: httpTimeout / 4}),
		answers("receiver takes events late", bus.Answer{Status: 200, Delay: httpTimeout * 3 / 2, Late: true}),
		answers(routesRefused, bus.Answer{Status: 401}, bus.Answer{Status: 403, Keep: true}),
		answers(routesRefused+" and more",
			bus.Answer{Status: 401}, bus.Answer{Status: 404}, bus.Answer{Status: 502, Keep: true}, bus.Answer{}, bus.Answer{Keep: true}),
		fault{name: "bus restart", hurts: true, do: func(ctx context.Context, r *chance) error {
			receiver.Stop()
			r.wait(ctx, 1500*time.Millisecond)
			return receiver.Start()
		}})
	requests := 4
	if w.spec.Seed%2 == 1 {
		requests = 1
	}
	return &busUnderTest{
		sink: bridge.Sink{HTTP: map[string]any{
			"url": "http://" + proxy.Addr() + "/{resource}", "timeout": httpTimeout.String(), "maxEvents": 20, "requests": requests,
		}},
		byKey:   requests > 1,
		read:    func(context.Context) ([]bus.Message, error) { return receiver.Messages() },
		proxies: []*faultproxy.Proxy{proxy},
		close: func() {
			receiver.Stop()
			_ = proxy.Close()
		},
		faults: faults,
	}, nil
}
