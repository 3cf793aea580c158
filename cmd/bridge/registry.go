package main

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/kubebridge/kubebridge/internal/operate/status"
)

// newRegistry returns a registry with the metrics of the process itself.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "kubebridge", Name: "build_info", Help: "Always 1; the labels are the versions of the bridge and of Go.",
	}, []string{"version", "goversion"})
	build.WithLabelValues(currentVersion().Version, runtime.Version()).Set(1)
	r.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// newReady returns the answer of /readyz as a metric, for monitoring that does not probe /readyz.
func newReady(report func() status.Report) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "kubebridge", Name: "ready", Help: "1 while /readyz answers that the bridge is ready, 0 otherwise.",
	}, func() float64 {
		if r := report(); r.Ready {
			return 1
		}
		return 0
	})
}
