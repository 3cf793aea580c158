package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

// readFrames reads to the end, and returns the frames as "ADDED a@5".
func readFrames(r io.Reader) (got []string, err error) {
	f := newFrameReader(r, keepBuffer, &pieces{})
	for {
		kind, o, err := f.next()
		if err != nil {
			return got, err
		}
		got = append(got, kind+" "+o.Name+"@"+o.ResourceVersion)
	}
}

func TestFrames(t *testing.T) {
	a, b := frame("ADDED", "a", "5"), frame("DELETED", "b", "6")
	want := []string{"ADDED a@5", "DELETED b@6", "BOOKMARK @9"}
	for name, text := range map[string]string{
		"a line each":          a + b + bookmark("9"),
		"back to back":         strings.ReplaceAll(a+b+bookmark("9"), "\n", ""),
		"white space":          "\n \t" + a + "\r\n\n" + b + bookmark("9") + "\n\n",
		"the object in front":  `{"object":` + item("a", "5") + `,"type":"ADDED"}` + b + bookmark("9"),
		"an unknown member":    `{"new":{"type":"X"},"type":"ADDED","object":` + item("a", "5") + `}` + b + bookmark("9"),
		"escapes in the names": `{"typ\u0065":"\u0041DDED","\u006fbject":` + item("a", "5") + `}` + b + bookmark("9"),
	} {
		for how, wrap := range map[string]func(io.Reader) io.Reader{
			"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "the end with the last byte": iotest.DataErrReader,
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				got, err := readFrames(wrap(strings.NewReader(text)))
				if !errors.Is(err, io.EOF) {
					t.Errorf("it ended with %v", err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("frames (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// An object outlives the frame that it came in.
func TestFramesDoNotShareMemory(t *testing.T) {
	f := newFrameReader(strings.NewReader(frame("ADDED", "aaaa", "5")+frame("ADDED", "bbbb", "6")), keepBuffer, &pieces{})
	_, first, err := f.next()
	if err != nil {
		t.Fatal(err)
	}
	before := string(first.Raw)
	if _, _, err := f.next(); err != nil {
		t.Fatal(err)
	}
	if string(first.Raw) != before {
		t.Errorf("the next frame changed %s to %s", before, first.Raw)
	}
}

func TestFrameIsCutOff(t *testing.T) {
	text := frame("ADDED", "a", "5")
	whole := len(text) - 1 // the newline
	for n := 1; n < whole; n++ {
		_, err := readFrames(strings.NewReader(text[:n]))
		if !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			t.Fatalf("%q: got %v", text[:n], err)
		}
	}
	if _, err := readFrames(strings.NewReader(text[:whole])); !errors.Is(err, io.EOF) {
		t.Errorf("the whole frame: %v", err)
	}
	if _, err := readFrames(io.MultiReader(strings.NewReader(text), iotest.ErrReader(io.ErrClosedPipe))); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a broken connection: %v", err)
	}
}

func TestFrameThatIsNone(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                             "[ where an object should be",
		`"ADDED"`:                        "string where an object should be",
		`null`:                           "it has no type or no object",
		`{"type":"ADDED"}`:               "it has no type or no object",
		`{"object":{"a":1}}`:             "it has no type or no object",
		`{"type":7}`:                     "number where a string should be",
		`{"type":"ADDED","object":{}}`:   "an empty object",
		`{"type":"ADDED","object":"x"}`:  "string where a Kubernetes object should be",
		`{"type":"ADDED","object":null}`: "null where a Kubernetes object should be",
		`{"type":"ERROR","object":{"code":"none at all"}}`: "watch frame of type ERROR",
		`<html>`: "invalid character",
	} {
		if got, err := readFrames(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, %v, want an error with %q", text, got, err, want)
		}
	}
}

func TestErrorFrame(t *testing.T) {
	for name, text := range map[string]string{
		"as the server writes it": frame("ADDED", "a", "5") + errorFrame(http.StatusGone, "Expired"),
		"the object in front":     frame("ADDED", "a", "5") + `{"object":` + statusText(http.StatusGone, "Expired") + `,"type":"ERROR"}`,
	} {
		got, err := readFrames(strings.NewReader(text))
		if len(got) != 1 || !apierrors.IsResourceExpired(err) || !listwatch.IsExpired(err) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	_, err := readFrames(strings.NewReader(errorFrame(http.StatusInternalServerError, "InternalError")))
	if !apierrors.IsInternalError(err) || listwatch.IsExpired(err) || listwatch.StatusCode(err) != http.StatusInternalServerError {
		t.Errorf("got %v", err)
	}
}

// endless is a frame without an end.
type endless struct {
	head []byte
	read int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.head)
	e.head = e.head[n:]
	for i := n; i < len(p); i++ {
		p[i] = 'x'
	}
	e.read += len(p)
	return len(p), nil
}

// A frame without an end must not take all memory.
func TestFrameTooLarge(t *testing.T) {
	r := &endless{head: []byte(frame("ADDED", "a", "5") + `{"type":"ADDED","object":{"data":"`)}
	got, err := readFrames(r)
	if len(got) != 1 || !errors.Is(err, errFrameTooLarge) {
		t.Errorf("got %v, %v", got, err)
	}
	if r.read > maxFrame+1<<20 {
		t.Errorf("read %d bytes", r.read)
	}
}

// The bound is for one frame, not for a watch.
func TestManyFramesAreNotTooLarge(t *testing.T) {
	big := strings.Replace(frame("ADDED", "a", "5"), `"metadata"`, `"data":"`+strings.Repeat("x", 6<<20)+`","metadata"`, 1)
	got, err := readFrames(bytes.NewReader(bytes.Repeat([]byte(big), 4)))
	if len(got) != 4 || !errors.Is(err, io.EOF) {
		t.Errorf("got %d frames, %v", len(got), err)
	}
	almost := strings.Replace(big, "xxx", "xxx"+strings.Repeat("x", maxFrame-len(big)), 1)
	if len(almost) != maxFrame {
		t.Fatalf("%d bytes", len(almost))
	}
	if got, err := readFrames(strings.NewReader(almost + almost)); len(got) != 2 || !errors.Is(err, io.EOF) {
		t.Errorf("frames of 16 MiB: got %d, %v", len(got), err)
	}
}

// FuzzFrames: however a watch is cut into reads, its frames are those that encoding/json
// finds, and it ends where that one finds no more.
func FuzzFrames(f *testing.F) {
	for _, s := range []string{
		frame("ADDED", "a", "5") + bookmark("9"), errorFrame(http.StatusGone, "Expired"), `{"object":` + item("a", "5") + `,"type":"DELETED"}`,
		`{"type":"ADDED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"b"}}}`,
		`{"type":"ERROR","object":{"code":"x"}}`, `{"type":"ADDED"}`, `{"object":{"":""}}`, `null`, `{`, `{"type":"ADDED","object":{"metadata":{}},"object":{"a":{}}}`, `{"type":"ERROR"}`,
	} {
		f.Add([]byte(s))
	}
	f.Add([]byte(strings.Repeat(frame("ADDED", "a", "5")+frame("MODIFIED", strings.Repeat("b", 3000), "6"), 3)))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<16 {
			return
		}
		for _, r := range []io.Reader{bytes.NewReader(text), iotest.OneByteReader(bytes.NewReader(text)), iotest.DataErrReader(iotest.HalfReader(bytes.NewReader(text)))} {
			likeJSON(t, newFrameReader(r, minBuffer, &pieces{}), text)
		}
	})
}

// likeJSON compares the frames that r reads of text with what encoding/json says they
// are. It takes names that repeat, and others in another order, which r need not.
func likeJSON(t *testing.T, r *frameReader, text []byte) {
	d := json.NewDecoder(bytes.NewReader(text))
	held := map[*Object]string{} // objects that are kept while others are read
	defer func() {
		for o, want := range held {
			if string(o.Raw) != want {
				t.Errorf("%q: %q became %q while others were read", text, want, o.Raw)
			}
			o.Release()
		}
	}()
	for n := 0; ; n++ {
		kind, o, err := r.next()
		begin := d.InputOffset()
		var want map[string]json.RawMessage
		wantErr := d.Decode(&want)
		if !utf8.Valid(text) {
			return // encoding/json repairs invalid UTF-8
		}
		var wantKind string
		_ = json.Unmarshal(want["type"], &wantKind)
		if err != nil {
			frame := string(text[begin:d.InputOffset()])
			_, objectErr := ParseObject(want["object"])
			if good := wantErr == nil && wantKind != "" && wantKind != "ERROR" && objectErr == nil && comparable(frame); good || errors.Is(err, io.EOF) != errors.Is(wantErr, io.EOF) {
				t.Fatalf("%q: %q: %v; encoding/json says %v", text, frame, err, wantErr)
			}
			return
		}
		if wantErr != nil || kind != wantKind || kind == "" || kind == "ERROR" || !bytes.Equal(o.Raw, want["object"]) {
			t.Fatalf("%q: a frame of type %q with the object %q; encoding/json says %q, %q, %v", text, kind, o.Raw, wantKind, want["object"], wantErr)
		}
		fromNowhere(false).restore(o, nil)
		if _, err := ParseObject(o.Raw); err != nil {
			t.Fatalf("%q: %q: %v", text, o.Raw, err)
		}
		if n%3 == 1 {
			held[o] = string(o.Raw)
			continue
		}
		o.Release() // what is read into its memory now is another frame's
	}
}
