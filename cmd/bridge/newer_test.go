package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	natsgo "github.com/nats-io/nats.go"
)

// A downgrade writes nothing. If the checkpoint, on NATS or in a directory, has a newer format, the program ends at
// its start with one line that names the place and the remedy. If the format is supported, the program continues.
func TestRunRefusesANewerFormat(t *testing.T) {
	for _, place := range []string{"directory", "NATS"} {
		t.Run(place, func(t *testing.T) {
			url := startNATS(t)
			js := jetStream(t, url)
			path, onNATS, checkpoints := movable(t, url)
			directory, bucket := filepath.Join(checkpoints, "live"), "kubebridge_kubebridge_5b8f1c34_live"
			where, setFormat := directory, func(format string) {
				write(t, filepath.Join(directory, "KUBEBRIDGE"), "kubebridge checkpoint, format "+format+"\n")
			}
			if place == "NATS" {
				path, where, setFormat = onNATS, bucket, func(format string) { setBucketFormat(t, js, "KV_"+bucket, format) }
			}
			smallCluster(t)
			log, stop := start(t, path)
			log.awaits(t, `"msg":"synced"`)
			if code := stop(); code != exitOK {
				t.Fatalf("the bridge ends with %d:\n%s", code, log)
			}

			setFormat("5")
			smallCluster(t, changeOfB)
			before := written(t, js, checkpoints)
			log, stop = start(t, path)
			log.awaits(t, "bridge: ")
			if code := stop(); code != exitEnvironment {
				t.Errorf("the bridge ends with %d", code)
			}
			_, last, _ := strings.Cut(log.String(), "bridge: ")
			for _, part := range []string{where, "checkpoint was written by a newer version: it has format 5, this version reads format 4", "run the newer version, or give it up with `bridge checkpoint reset --sink live`"} {
				if !strings.Contains(last, part) {
					t.Errorf("it does not say %q:\n%s", part, last)
				}
			}
			if strings.Count(last, "\n") != 1 {
				t.Errorf("it says more than one line:\n%s", last)
			}
			if after := written(t, js, checkpoints); !maps.Equal(before, after) {
				t.Errorf("it has written: there were\n\t%v, and are\n\t%v", before, after)
			}

			setFormat("4")
			log, _ = start(t, path)
			want := append(eventsOn(t, js), "modified b")
			awaitEvents(t, js, len(want), log)
			if got := eventsOn(t, js); !slices.Equal(got, want) {
				t.Errorf("it continues with %q, want %q", got, want)
			}
		})
	}
}

// setBucketFormat writes another format into the identity and the head of a checkpoint, as a bridge writes them.
func setBucketFormat(t *testing.T, js natsgo.JetStreamContext, stream, format string) {
	t.Helper()
	prefix := "$KV." + strings.TrimPrefix(stream, "KV_") + "."
	for _, token := range []string{"=21identity", "=head"} { // the head is the last message of each write
		m, err := js.GetLastMsg(stream, prefix+token)
		if err != nil {
			t.Fatal(err)
		}
		info, err := js.StreamInfo(stream)
		if err != nil {
			t.Fatal(err)
		}
		first, rest, _ := strings.Cut(string(m.Data), ",")
		incarnation, _, _ := strings.Cut(m.Header.Get("Kubebridge-Place"), ".")
		if !strings.HasPrefix(first, `{"version":`) || incarnation == "" {
			t.Fatalf("%s is %s, %v", token, m.Data, m.Header)
		}
		m.Header.Set("Kubebridge-Place", fmt.Sprintf("%s.%d", incarnation, info.State.LastSeq+1))
		maps.DeleteFunc(m.Header, func(name string, _ []string) bool { return strings.HasPrefix(name, "Nats-") })
		if _, err := js.PublishMsg(&natsgo.Msg{Subject: m.Subject, Header: m.Header, Data: []byte(`{"version":` + format + "," + rest)}); err != nil {
			t.Fatal(err)
		}
	}
}

// written returns the last sequence of each stream, and the content of each file below a directory.
func written(t *testing.T, js natsgo.JetStreamContext, dir string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for info := range js.Streams() {
		all[info.Config.Name] = info.State.LastSeq
	}
	if _, err := os.Stat(dir); err != nil {
		return all
	}
	if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		all[path] = string(text)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}
