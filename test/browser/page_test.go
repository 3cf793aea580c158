// Package browser checks the status page with a real browser.
package browser

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/base/httpserver"
	"github.com/kubebridge/kubebridge/internal/operate/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is the longest time for one check of a page.
const patience = time.Minute

func ptr[T any](v T) *T { return &v }

// reports makes a bridge with the given number of collections. If there are many, every tenth has a problem.
func reports(collections int) func() status.Report {
	started := time.Now()
	return func() status.Report {
		now := time.Now()
		before := now.Add(-90 * time.Second)
		r := status.Report{
			Ready: collections <= 3, Name: "kubebridge", Version: "v0.9.0", Cluster: "prod-eu-1", ClusterUID: "5b8f1c34-65d5-4c8e-9d32-0f4bcbf8a5c1",
			Started: started.Add(-26 * time.Hour), At: now, ConfigDigest: strings.Repeat("5e", 32),
			Sinks: []status.Sink{{
				Name: "audit", Bus: "kafka", Delivery: "exactly-once", Address: "kafka-0.kafka:9092, kafka-1.kafka:9092, kafka-2.kafka:9092", Ready: true,
				Delivered: 1204332 + uint64(now.Sub(started).Milliseconds()), LastEvent: &now, LastCommit: &now,
				Queue: status.Queue{Events: 41, EventCapacity: 4000, Bytes: 91234, ByteCapacity: 8 << 20}, Lag: ptr(0.03),
			}},
		}
		if collections > 3 {
			r.Sinks = append(r.Sinks, status.Sink{
				Name: "live", Bus: "nats", Delivery: "exactly-once", Address: "nats://nats.messaging.svc.cluster.local:4222", Delivered: 88211,
				Failing: "write to the bus: nats: no responders available for request: stream K8S_prod-eu-1 has no leader", Since: &before,
				LastError: &status.Trouble{Error: "no leader", Advice: "nothing, unless it lasts: it is tried again, and nothing is lost meanwhile", At: before},
				Queue:     status.Queue{Events: 4000, EventCapacity: 4000, Bytes: 7 << 20, Oldest: &before},
			})
		}
		for i := range collections {
			c := status.Collection{
				ID: fmt.Sprintf("widgets%03d.example-group.crossplane.io", i), APIVersion: "example-group.crossplane.io/v1beta1", Kind: fmt.Sprintf("Widget%03d", i),
				State: "watching", Since: before, Position: fmt.Sprint(918273645 + i), Delivered: uint64(i * 7), Lag: ptr(0.004 * float64(i+1)), LagAt: now,
				Objects: ptr(int64(i * i)), Gap: &status.Gap{Reason: "reset", Opened: before, Closed: &now},
			}
			if i%3 == 0 { // of an entry with a name and one collection per namespace
				c.ID += ":canary@payments-production"
			}
			switch {
			case i == 2:
				c.State, c.Gap.Closed, c.Lag, c.Objects = "reconciling", nil, nil, nil
				c.List = &status.List{Read: 21500, Remaining: ptr(int64(18500))}
			case collections > 3 && i%50 == 7:
				c.State, c.RetryAt = "waiting", ptr(now.Add(7*time.Second))
				c.Error = c.ID + ` is forbidden: User "system:serviceaccount:kubebridge:kubebridge" cannot list resource at the cluster scope`
				c.LastError = &status.Trouble{Error: c.Error, Advice: "let the bridge's account get, list and watch the resource", At: now}
			}
			s := &r.Sinks[i%len(r.Sinks)]
			s.Collections = append(s.Collections, c)
		}
		return r
	}
}

// changes returns a collection's last changes: one of an object with malicious content, and a wide one.
func changes(string, string) ([]status.Change, bool) {
	const hostile = `"><script>document.title="harm"</script><img src="http://example.org/x" onerror="document.title='harm'">`
	at := time.Now().Add(-time.Minute)
	return []status.Change{
		{Time: at, Type: "deleted", Namespace: "shop", Name: "web", Origin: "watch", ResourceVersion: "44", Who: "unknown", By: []byte("[]")},
		{Time: at, Type: "modified", Name: hostile, Origin: "reconcile", ResourceVersion: "43", Who: hostile, By: []byte("[]"), Note: "updates in between are not known", Diff: "~/metadata/annotations: " + hostile + "\n"},
		{
			Time: at, Type: "modified", Namespace: "shop", Name: "web", Origin: "watch", ResourceVersion: "42", Who: "kubectl, deployment-controller/status", By: []byte("[]"),
			Diff: "@@ -5,4 +5,4 @@\n spec:\n-  replicas: 2\n+  replicas: 3\n   wide: " + strings.Repeat("wide ", 60) + "\n",
		},
		{Time: at, Type: "added", Namespace: "shop", Name: "web", Origin: "watch", ResourceVersion: "41", Who: "kubectl", By: []byte("[]")},
	}, true
}

// serveStatus serves a bridge's status and returns its address.
func serveStatus(t *testing.T, collections int) string {
	t.Helper()
	s, err := status.New(status.Options{
		Serve: httpserver.Options{Listen: "127.0.0.1:0", Log: zap.NewNop()}, Gatherer: prometheus.NewRegistry(), Report: reports(collections), Changes: changes,
		Alive: func(context.Context) bool { return true },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "http://" + s.Addr().String() + "/"
}

// browser starts a browser.
func browser(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		t.Fatal("no Chromium: scripts/test.sh installs it, or apt-get install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-dev-shm-usage", true))
	all, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, stopBrowser := chromedp.NewContext(all)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		stopBrowser()
	})
	if err := chromedp.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// complaints records errors in the browser, and requests to any server other than the page's.
type complaints struct {
	mu   sync.Mutex
	list []string
}

func (c *complaints) add(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, fmt.Sprintf(format, args...))
}

func (c *complaints) listen(ctx context.Context, home string) {
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventConsoleAPICalled:
			c.add("console: %s", e.Type)
		case *runtime.EventExceptionThrown:
			c.add("exception: %s", e.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			c.add("log: %s", e.Entry.Text)
		case *network.EventRequestWillBeSent:
			if u, err := url.Parse(e.Request.URL); err != nil || "http://"+u.Host+"/" != home {
				c.add("a request to %s", e.Request.URL)
			}
		case *network.EventResponseReceived:
			if e.Response.Status >= 400 {
				c.add("%s answers %v", e.Response.URL, e.Response.Status)
			}
		}
	})
}

// TestPage opens the page with few and with many collections, with a light and a dark color scheme, on a large screen and on a
// phone. Screenshots are written to the directory KUBEBRIDGE_PICTURES.
func TestPage(t *testing.T) {
	root := browser(t)
	for _, collections := range []int{3, 500} {
		home := serveStatus(t, collections)
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int64{1280, 390} {
				t.Run(fmt.Sprintf("%d-%s-%d", collections, scheme, width), func(t *testing.T) {
					tab, closeTab := chromedp.NewContext(root)
					defer closeTab()
					ctx, cancel := context.WithTimeout(tab, patience)
					defer cancel()
					var found complaints
					found.listen(ctx, home)
					var (
						overflow, rows, left int64
						picture              []byte
						background           string
					)
					err := chromedp.Run(ctx,
						log.Enable(), network.Enable(),
						emulation.SetDeviceMetricsOverride(width, 900, 1, width < 500),
						emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
						chromedp.Navigate(home),
						chromedp.WaitVisible("#rows tr", chromedp.ByQuery),
						chromedp.Evaluate(`document.documentElement.scrollWidth - document.documentElement.clientWidth`, &overflow),
						chromedp.Evaluate(`document.querySelectorAll("#rows tr[data-find]:not([hidden])").length`, &rows),
						chromedp.Evaluate(`getComputedStyle(document.body).backgroundColor`, &background),
						chromedp.CaptureScreenshot(&picture),
						chromedp.SendKeys("#q", "widget001", chromedp.ByQuery),
						chromedp.Evaluate(`document.querySelectorAll("#rows tr[data-find]:not([hidden])").length`, &left),
					)
					if err != nil {
						t.Fatal(err)
					}
					if overflow > 0 {
						t.Errorf("the page is %d px wider than the screen", overflow)
					}
					if rows != int64(collections) || left != 1 {
						t.Errorf("%d rows, and %d of them fit the filter", rows, left)
					}
					if dark := strings.HasPrefix(background, "rgb(15,"); dark != (scheme == "dark") {
						t.Errorf("the background is %s", background)
					}
					for _, complaint := range found.list {
						t.Error(complaint)
					}
					keepPicture(t, picture)
				})
			}
		}
	}
}

// TestChanges opens the last changes of a collection. The content of an object is shown as text, also on a phone, and the page
// updates automatically.
func TestChanges(t *testing.T) {
	root := browser(t)
	home := serveStatus(t, 3)
	for _, width := range []int64{1280, 390} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			tab, closeTab := chromedp.NewContext(root)
			defer closeTab()
			ctx, cancel := context.WithTimeout(tab, patience)
			defer cancel()
			var found complaints
			found.listen(ctx, home)
			var (
				overflow, cards int64
				picture         []byte
				title           string
			)
			err := chromedp.Run(ctx,
				log.Enable(), network.Enable(),
				emulation.SetDeviceMetricsOverride(width, 900, 1, width < 500),
				chromedp.Navigate(home),
				chromedp.Click(`#rows a`, chromedp.ByQuery),
				chromedp.WaitVisible(".diff .plus", chromedp.ByQuery),
				chromedp.Evaluate(`document.documentElement.scrollWidth - document.documentElement.clientWidth`, &overflow),
				chromedp.CaptureScreenshot(&picture),
				chromedp.Evaluate(`document.querySelector("#changes").replaceChildren(), document.dispatchEvent(new Event("visibilitychange")), true`, nil),
				chromedp.WaitVisible(".diff .plus", chromedp.ByQuery), // read again
				chromedp.Evaluate(`document.querySelectorAll("#changes article").length`, &cards),
				chromedp.Title(&title),
			)
			if err != nil {
				t.Fatal(err)
			}
			if overflow > 0 {
				t.Errorf("the page is %d px wider than the screen", overflow)
			}
			if cards != 4 || !strings.HasPrefix(title, "Changes of widgets") {
				t.Errorf("%d changes below %q", cards, title)
			}
			for _, complaint := range found.list {
				t.Error(complaint)
			}
			keepPicture(t, picture)
		})
	}
}

// keepPicture leaves a test's picture where KUBEBRIDGE_PICTURES says.
func keepPicture(t *testing.T, picture []byte) {
	t.Helper()
	if dir := os.Getenv("KUBEBRIDGE_PICTURES"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "-")+".png"), picture, 0o600); err != nil {
			t.Error(err)
		}
	}
}

// TestContrast: text with too little contrast is hard to read.
func TestContrast(t *testing.T) {
	root := browser(t)
	home := serveStatus(t, 500)
	for _, scheme := range []string{"light", "dark"} {
		ctx, cancel := context.WithTimeout(root, patience)
		defer cancel()
		pairs := map[string][]float64{}
		err := chromedp.Run(ctx,
			emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
			chromedp.Navigate(home), chromedp.WaitVisible("#rows tr", chromedp.ByQuery),
			chromedp.Evaluate(`(() => {
				const numbers = c => c.match(/[\d.]+/g).map(Number), out = {};
				for (const name of [".chip.ok", ".chip.busy", ".chip.bad", "td small", ".why", ".soft", ".leads dt", "thead th", "footer a"]) {
					const e = document.querySelector(name);
					if (!e) continue;
					let back = e;
					while (back && /, 0\)$/.test(getComputedStyle(back).backgroundColor)) back = back.parentElement;
					out[name] = [...numbers(getComputedStyle(e).color).slice(0, 3), ...numbers(getComputedStyle(back || document.body).backgroundColor).slice(0, 3)];
				}
				return out;
			})()`, &pairs))
		if err != nil {
			t.Fatal(err)
		}
		if len(pairs) < 8 {
			t.Errorf("%s: only %v are on the page", scheme, pairs)
		}
		for name, p := range pairs {
			if c := contrast(p[:3], p[3:]); c < 4.5 { // WCAG 2.2, 1.4.3
				t.Errorf("%s: %s has a contrast of %.1f, less than 4.5", scheme, name, c)
			}
		}
	}
}

// contrast is WCAG's contrast ratio of two colours of sRGB.
func contrast(a, b []float64) float64 {
	luminance := func(rgb []float64) float64 {
		sum := 0.0
		for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
			v := rgb[i] / 255
			if v <= 0.04045 {
				v /= 12.92
			} else {
				v = math.Pow((v+0.055)/1.055, 2.4)
			}
			sum += weight * v
		}
		return sum
	}
	x, y := luminance(a)+0.05, luminance(b)+0.05
	return max(x, y) / min(x, y)
}
