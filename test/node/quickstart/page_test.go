package main

import (
	"strings"
	"testing"
)

const page = "# Page\n\nText.\n\n    make build\n    make run\n\nMore:\n\n<!-- quickstart: file a.yaml -->\n\n```yaml\na:\n  b: 1\n```\n\n" +
	"<!-- quickstart: terminal 2 until [\"type\"] -->\n    kcat\n\n<!-- quickstart: until ready -->\n```\nserve\n```\n\n" +
	"<!-- quickstart: terminal 3 and terminal 2 prints added -->\n```\nchange\n```\n\n<!-- quickstart: skip needs Docker -->\n```\ndocker build .\n```\n\n- a list\n    that goes on\n"

func TestBlocks(t *testing.T) {
	got, err := blocks(strings.Replace(page, "-->\n    kcat", "-->\n\n    kcat", 1))
	if err != nil {
		t.Fatal(err)
	}
	want := []block{
		{line: 5, text: "make build\nmake run\n", terminal: "1"},
		{line: 12, text: "a:\n  b: 1\n", file: "a.yaml", terminal: "1"},
		{line: 19, text: "kcat\n", terminal: "2", until: `["type"]`},
		{line: 22, text: "serve\n", terminal: "1", until: "ready"},
		{line: 27, text: "change\n", terminal: "3", other: "2", prints: "added"},
		{line: 32, text: "docker build .\n", skip: "needs Docker", terminal: "1"},
	}
	if len(got) != len(want) {
		t.Fatalf("%d blocks, want %d: %v", len(got), len(want), got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("block %d: %+v, want %+v", i, got[i], want[i])
		}
	}
}

// The pages need these cases: a block that continues while another one makes it print, Ctrl-C, and a block that fails.
func TestReader(t *testing.T) {
	r := reader{ctx: t.Context(), terminals: map[string]*session{}}
	t.Cleanup(r.leave)
	pipe := t.TempDir() + "/pipe"
	for _, b := range []block{
		{text: "test -t 1\nmkfifo " + pipe + "\n", terminal: "1"},
		{text: "echo ready\ncat <> " + pipe + "\n", terminal: "1", until: "ready"},
		{text: "echo changed >" + pipe + "\n", terminal: "2", other: "1", prints: "changed"},
		{text: "echo again\n", terminal: "1"},
	} {
		if err := r.follow(b); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range []block{
		{text: "false\ntrue\n", terminal: "1"},
		{text: "true\n", terminal: "1", until: "never"},
	} {
		if err := r.follow(b); err == nil {
			t.Errorf("no error of %q", b.text)
		}
	}
}

// A misspelt comment must be an error, because it would silently change whether a block runs.
func TestComments(t *testing.T) {
	for _, c := range []string{"skip", "file", "skipped docker", "terminal two until x"} {
		if _, err := blocks("<!-- quickstart: " + c + " -->\n```\nx\n```\n"); err == nil {
			t.Errorf("the comment %q is accepted", c)
		}
	}
	if _, err := blocks("<!-- quickstart: skip x -->\nText\n"); err == nil {
		t.Error("a comment before text is accepted")
	}
}
