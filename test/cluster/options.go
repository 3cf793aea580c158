package main

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// options are the values of the command line. A port of 0 means the port used before in this data directory, else a free port.
type options struct {
	dataDir         string
	port            int
	etcdPort        int
	etcdURL         string // of another cluster's etcd; "": this program runs one
	eventTTL        time.Duration
	logLevel        int
	withControllers bool
	apiServerArgs   []string
}

// parseOptions reads the command line without the program's name. If the arguments ask for help, it prints the usage and returns
// flag.ErrHelp.
func parseOptions(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("cluster", flag.ContinueOnError)
	fs.StringVar(&o.dataDir, "data-dir", "", "`directory` of etcd's data, the certificates, keys and kubeconfig; made if absent, used again if not (required)")
	fs.IntVar(&o.port, "port", 0, "the API server's `port` on 127.0.0.1; 0 means the one used before in this data directory, else a free one")
	fs.IntVar(&o.etcdPort, "etcd-port", 0, "etcd's client `port` on 127.0.0.1; 0 as above")
	fs.StringVar(&o.etcdURL, "etcd-url", "", "`URL` of the etcd of another cluster of this program, which this API server then shares: copy that one's pki directory first. Empty means an etcd of its own")
	fs.DurationVar(&o.eventTTL, "event-ttl", time.Hour, "how long Event objects live")
	fs.IntVar(&o.logLevel, "log-level", 0, "klog `verbosity` of cluster.log in the data directory")
	fs.BoolVar(&o.withControllers, "with-controllers", false, "leave on the admission plugins that need a controller manager beside it: pods get service account tokens")
	fs.Func("apiserver-arg", "a further kube-apiserver `flag`, as in --apiserver-arg=--watch-cache=false; repeatable, wins over this program's own", func(v string) error {
		if !strings.HasPrefix(v, "--") {
			return errors.New("want --name=value")
		}
		o.apiServerArgs = append(o.apiServerArgs, v)
		return nil
	})
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: everything is a flag", fs.Arg(0))
	}
	if o.dataDir == "" {
		return o, errors.New("--data-dir is required: name a directory for etcd's data and the certificates")
	}
	if o.logLevel < 0 {
		return o, fmt.Errorf("--log-level=%d: want 0 or more", o.logLevel)
	}
	abs, err := filepath.Abs(o.dataDir)
	if err != nil {
		return o, fmt.Errorf("--data-dir: %w", err)
	}
	o.dataDir = abs
	return o, nil
}
