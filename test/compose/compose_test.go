// Package compose checks docker-compose.yaml and the Dockerfile with the
// libraries that Docker itself reads them with. It starts no container:
// `make test-compose` does.
package compose

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
)

const root = "../.."

// load is what `docker compose config` shows, in an environment of our own. Files
// that .env would add are not read.
func load(t *testing.T, env ...string) *types.Project {
	t.Helper()
	o, err := cli.NewProjectOptions([]string{root + "/docker-compose.yaml"},
		cli.WithEnv(env), cli.WithResolvedPaths(true), cli.WithConsistency(true), cli.WithInterpolation(true))
	must(t, err)
	p, err := o.LoadProject(t.Context())
	must(t, err)
	return p
}

func TestServices(t *testing.T) {
	p := load(t)
	if p.Name != "kubebridge" { // the comments name a container after it
		t.Errorf("the project is called %q", p.Name)
	}
	var got []string
	for _, name := range p.ServiceNames() {
		s := p.Services[name]
		for _, port := range s.Ports {
			got = append(got, fmt.Sprintf("%s %s:%s->%d", name, port.HostIP, port.Published, port.Target))
		}
	}
	want := []string{
		"bridge 127.0.0.1:8080->8080",
		"kafka 127.0.0.1:9094->9094",
		"kafka-ui 127.0.0.1:8081->8080",
		"nats 127.0.0.1:4222->4222",
		"nats-ui 127.0.0.1:31311->31311",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("published ports: nothing may be open to other machines (-want +got):\n%s", diff)
	}
}

// Images must be pinned, so that the same versions run next year.
func TestImagesArePinned(t *testing.T) {
	version := regexp.MustCompile(`:v?[0-9]+\.[0-9]+\.[0-9]+(-[a-z]+)?$`)
	for name, s := range load(t).Services {
		if s.Build == nil && !version.MatchString(s.Image) {
			t.Errorf("%s: image %q is not pinned to a version", name, s.Image)
		}
	}
}

// A dependency on the health of a service without a health check would wait without end.
func TestHealth(t *testing.T) {
	p := load(t)
	for name, s := range p.Services {
		if s.Build == nil && (s.HealthCheck == nil || len(s.HealthCheck.Test) == 0 || s.HealthCheck.Interval == nil || s.HealthCheck.Retries == nil) {
			t.Errorf("%s has no complete healthcheck", name)
		}
		for on, how := range s.DependsOn {
			if how.Condition != types.ServiceConditionHealthy || p.Services[on].HealthCheck == nil {
				t.Errorf("%s depends on %s with %s", name, on, how.Condition)
			}
		}
	}
	for _, on := range []string{"kafka", "nats"} {
		if _, ok := p.Services["bridge"].DependsOn[on]; !ok {
			t.Errorf("the bridge does not wait for %s", on)
		}
	}
}

// The services must keep their data when `docker compose down` removes the containers and `up` creates them again.
func TestVolumes(t *testing.T) {
	p := load(t)
	used := map[string]string{}
	for name, s := range p.Services {
		for _, v := range s.Volumes {
			switch v.Type {
			case types.VolumeTypeVolume:
				if was, ok := used[v.Source]; ok {
					t.Errorf("%s and %s share the volume %s", name, was, v.Source)
				}
				used[v.Source] = name
			case types.VolumeTypeBind:
				if !v.ReadOnly || v.Bind == nil || bool(v.Bind.CreateHostPath) {
					t.Errorf("%s: the mount of %s is writable or has create_host_path, want a read-only mount without it", name, v.Source)
				}
			default:
				t.Errorf("%s: volume of type %s", name, v.Type)
			}
		}
	}
	for name := range p.Volumes {
		if used[name] == "" {
			t.Errorf("no service uses the volume %s", name)
		}
	}
	for _, name := range []string{"bridge", "kafka", "nats"} {
		if used[name] != name {
			t.Errorf("%s has no volume", name)
		}
	}
}

// A variable that is not set would silently be empty.
func TestVariables(t *testing.T) {
	raw, err := os.ReadFile(root + "/docker-compose.yaml")
	must(t, err)
	text := regexp.MustCompile(`(?m)(^|\s)#.*$`).ReplaceAllString(string(raw), "")
	all := regexp.MustCompile(`\$\{?[A-Za-z_]`).FindAllString(text, -1)
	if defaulted := regexp.MustCompile(`\$\{[A-Z_]+:-[^}]+\}`).FindAllString(text, -1); len(defaulted) != len(all) || len(all) != 3 {
		t.Errorf("%d variables, %d with a default, want 3", len(all), len(defaulted))
	}

	t.Setenv("HOME", "/home/someone")
	for _, c := range []struct {
		env                       []string
		kubeconfig, user, version string
	}{
		{nil, "/home/someone/.kube/config", "1000:65532", "compose"},
		{[]string{"KUBECONFIG=/tmp/k", "BRIDGE_UID=501", "VERSION=v1"}, "/tmp/k", "501:65532", "v1"},
	} {
		bridge := load(t, c.env...).Services["bridge"]
		if got := source(bridge, bridge.Environment["KUBEBRIDGE_KUBERNETES_KUBECONFIG"]); got != c.kubeconfig {
			t.Errorf("with %v the kubeconfig is %q, want %q", c.env, got, c.kubeconfig)
		}
		if bridge.User != c.user {
			t.Errorf("with %v the user is %q, want %q", c.env, bridge.User, c.user)
		}
		if v := bridge.Build.Args["VERSION"]; v == nil || *v != c.version {
			t.Errorf("with %v the version is %v, want %q", c.env, v, c.version)
		}
	}
}

// source is the file of this machine that stands at a path in the container.
func source(s types.ServiceConfig, target *string) string {
	for _, v := range s.Volumes {
		if target != nil && v.Target == *target {
			return v.Source
		}
	}
	return ""
}

// The bridge's configuration and this file name each other's servers.
func TestBusesAreTheBridges(t *testing.T) {
	p := load(t)
	raw, err := os.ReadFile(source(p.Services["bridge"], new("/etc/kubebridge/config.yaml")))
	must(t, err)
	var c struct {
		Sinks []struct {
			Kafka struct{ Brokers []string }
			NATS  struct{ URL string } `yaml:"nats"`
		}
	}
	must(t, yaml.Unmarshal(raw, &c))
	if len(c.Sinks) != 2 || len(c.Sinks[0].Kafka.Brokers) != 1 {
		t.Fatalf("the bridge's sinks are %+v, want Kafka's and NATS'", c.Sinks)
	}
	broker := c.Sinks[0].Kafka.Brokers[0]
	if listeners := p.Services["kafka"].Environment["KAFKA_ADVERTISED_LISTENERS"]; !strings.Contains(*listeners, "INSIDE://"+broker+",") {
		t.Errorf("the broker %s is not one that Kafka advertises: %s", broker, *listeners)
	}
	if got := p.Services["kafka-ui"].Environment["KAFKA_CLUSTERS_0_BOOTSTRAPSERVERS"]; *got != broker {
		t.Errorf("Kafka's page shows %s, the bridge writes to %s", *got, broker)
	}
	if url := c.Sinks[1].NATS.URL; url != "nats://nats:4222" || !strings.Contains(p.Configs["nats-context"].Content, `"`+url+`"`) {
		t.Errorf("the bridge writes to %s, NATS' page shows %s", url, p.Configs["nats-context"].Content)
	}
}

// must ends the test at an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
