package scan_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/kubebridge/internal/base/scan"
)

// texts are inputs on which scanners are likely to disagree.
var texts = []string{
	`{}`, `[]`, `null`, `true`, `false`, `"x"`, ` { "a" : [ 1 , { } , [ ] ] } `, `[[[[]]]]`, `{"a":{"b":{}},"c":[{},[],null]}`,
	``, ` `, `{`, `[`, `}`, `]`, `"`, `{"`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{,}`, `{"a" 1}`, `{"a"::1}`, `{1:2}`, `[1,]`, `[,1]`, `[1 2]`, `[1}`, `{"a":1]`, `[]]`, `{}{}`, `{} x`,
	`0`, `-0`, `-`, `01`, `-01`, `1.`, `.1`, `1.5`, `1e`, `1e+`, `1E-5`, `1.e5`, `+1`, `0x1`, `1e5.5`, `--1`, `-a`, `12345678901234567890`, `[-]`, `[1.]`, `{"a":1e}`,
	`tru`, `trux`, `truee`, `nul`, `nulll`, `fals`, `True`, `[true,false,null]`, `[nul]`, `{"a":tru}`,
	`"\u0061"`, `"\u006"`, `"\u006g"`, `"\ud800"`, `"\ud800\udc00"`, `"\uD800\u0061"`, `"\x"`, `"\"`, `"\\"`, `"\/\b\f\n\r\t\""`, `"\u`, "\"\x00\"", "\"\x1f\"", "\"\x7f\"", "\"\xff\"", "\"a\nb\"", "\"1234567\t\"", "\"12345678\\\"9012345\\\\\"",
	"\"\xed\xa0\x80\"", "\ufeff{}", "{}\x00", "\v1", "[\u00a01]", "\"\u2028\"", `/**/1`, `'a'`, `NaN`, `{"a":1,"a":2}`,
	strings.Repeat("[", 5000) + strings.Repeat("]", 5000), strings.Repeat(`{"":`, 5000) + `0` + strings.Repeat("}", 5000),
}

// chunks gives a text to a scanner in pieces of n bytes, each in new memory.
func chunks(text []byte, n int) func([]byte) ([]byte, error) {
	return func(have []byte) ([]byte, error) {
		if len(have) == len(text) {
			return nil, io.EOF
		}
		return bytes.Clone(text[:min(len(have)+n, len(text))]), nil
	}
}

// walk reads a text by members and elements, and writes down what it finds.
func walk(s *scan.Scanner, out *strings.Builder) error {
	c, err := s.Peek()
	if err != nil {
		return err
	}
	switch c {
	case '{':
		out.WriteByte('{')
		err = s.Members(func(name []byte, start int) error {
			if before := s.Text()[start-1]; before != '{' && s.Text()[start] != ',' && !strings.ContainsRune(scan.WhiteSpace, rune(s.Text()[start])) {
				return errors.New("a member that begins in the middle")
			}
			out.Write(name)
			out.WriteByte(':')
			return walk(s, out)
		})
		out.WriteByte('}')
	case '[':
		out.WriteByte('[')
		err = s.Elements(func() error { return walk(s, out) })
		out.WriteByte(']')
	case '"':
		var text string
		text, err = s.String("")
		out.WriteString(text)
		out.WriteByte(';')
	default:
		var v []byte
		v, err = s.Value()
		out.Write(v)
		out.WriteByte(';')
	}
	return err
}

// walkTokens does the same with jsontext.
func walkTokens(text []byte) (string, error) {
	d := decoder(text)
	var out strings.Builder
	for {
		t, err := d.ReadToken()
		if errors.Is(err, io.EOF) {
			return out.String(), nil
		}
		if err != nil {
			return "", err
		}
		switch k := t.Kind(); k {
		case '{', '}', '[', ']':
			out.WriteByte(byte(k))
		default:
			out.WriteString(t.String())
			if kind, n := d.StackIndex(d.StackDepth()); kind == '{' && n%2 == 1 {
				out.WriteByte(':')
			} else {
				out.WriteByte(';')
			}
		}
	}
}

func decoder(text []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// check compares the scanner with encoding/json and jsontext.
func check(t *testing.T, text []byte) {
	t.Helper()
	d := decoder(text)
	value, err := d.ReadValue()
	value = bytes.Clone(value) // the decoder reuses its buffer
	end := int(d.InputOffset())
	one := err == nil
	if one {
		_, err = d.ReadToken()
		one = errors.Is(err, io.EOF)
	}
	if valid := json.Valid(text); valid != one {
		t.Logf("%q: encoding/json says %t, jsontext %t", text, valid, one)
	}
	for _, n := range []int{0, 1, 7, 1 << 14} {
		if n != 0 && len(text)/n > 1<<10 {
			continue
		}
		var s scan.Scanner
		begin := func() {
			if n == 0 {
				s.Reset(text)
			} else {
				s.Stream(nil, chunks(text, n))
			}
		}
		begin()
		got, err := s.Value()
		if (err == nil) != (value != nil) || err == nil && (!bytes.Equal(got, value) || s.Offset() != end) {
			t.Fatalf("%q by %d: the first value is %q up to %d, %v; jsontext has %q up to %d", text, n, got, s.Offset(), err, value, end)
		}
		if err == nil {
			err = s.End()
		}
		if (err == nil) != one || (err == nil) != json.Valid(text) {
			t.Fatalf("%q by %d: %v; jsontext says valid: %t, encoding/json: %t", text, n, err, one, json.Valid(text))
		}
		begin()
		var said strings.Builder
		err = walk(&s, &said)
		if err == nil {
			err = s.End()
		}
		if (err == nil) != one {
			t.Fatalf("%q by %d, by members: %v, want valid: %t", text, n, err, one)
		}
		if !one {
			continue
		}
		if want, err := walkTokens(text); err != nil || want != said.String() {
			t.Fatalf("%q by %d: it says %q, want %q, %v", text, n, said.String(), want, err)
		}
	}
}

func TestLikeTheOthers(t *testing.T) {
	for _, text := range texts {
		check(t, []byte(text))
		check(t, []byte("["+text+",{\"\":"+text+"}]"))
	}
}

// A value that is read as a whole may have any number of levels, which are counted. Callers that recurse stop at a
// limit.
func TestDepth(t *testing.T) {
	for _, levels := range []int{2, 63, 64, scan.MaxDepth, scan.MaxDepth + 1, 1 << 20} {
		for _, text := range []string{
			strings.Repeat("[", levels) + strings.Repeat("]", levels),
			strings.Repeat(`{"":`, levels-1) + "{}" + strings.Repeat("}", levels-1),
			"[{}," + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + ",[]]",
		} {
			var s scan.Scanner
			s.Reset([]byte(text))
			if v, err := s.Value(); err != nil || len(v) != len(text) || s.Levels() != levels {
				t.Errorf("%.10s of %d levels: %d bytes, %d levels, %v", text, levels, len(v), s.Levels(), err)
			}
			s.Reset([]byte(text + "]"))
			if err := s.Skip(); err != nil || s.End() == nil {
				t.Errorf("%.10s of %d levels and another bracket: %v", text, levels, err)
			}
			s.Reset([]byte("[[" + text + "]]"))
			if err := walk(&s, &strings.Builder{}); (err == nil) != (levels+2 <= scan.MaxDepth) {
				t.Errorf("%.10s of %d levels, by members: %v", text, levels, err)
			}
		}
	}
	var s scan.Scanner
	s.Reset([]byte(`{"a":[[[1]]],"b":[{}],"c":1}`))
	var got []int
	err := s.Members(func([]byte, int) error {
		s.Measure()
		err := s.Skip()
		got = append(got, s.Levels())
		return err
	})
	if want := []int{3, 2, 0}; err != nil || !slices.Equal(got, want) {
		t.Errorf("the members have %v levels, want %v; %v", got, want, err)
	}
}

// A connection may pause or break at every place of a real frame.
func TestFramesCutAnywhere(t *testing.T) {
	text, err := os.ReadFile("testdata/events.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	frame, _, _ := bytes.Cut(text, []byte("\n"))
	for n := range frame {
		var s scan.Scanner
		s.Reset(frame[:n])
		if err := s.Skip(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%q: %v", frame[:n], err)
		}
		s.Stream(frame[:n:n], chunks(frame, len(frame)))
		if v, err := s.Value(); err != nil || !bytes.Equal(v, frame) {
			t.Fatalf("from byte %d on: %q, %v", n, v, err)
		}
		broken := bytes.Clone(frame)
		broken[n] = 0
		s.Reset(broken)
		if err := s.Skip(); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("a null byte at %d: %v", n, err)
		}
	}
}

// An error of the reader reaches the caller, at whatever place it occurs.
func TestReaderFails(t *testing.T) {
	broken := errors.New("broken")
	text := `{"a":[true,-1.5e+3,"\u0061",{"b":null}]}`
	for n := range text {
		var s scan.Scanner
		s.Stream([]byte(text[:n]), func([]byte) ([]byte, error) { return nil, broken })
		if err := s.Skip(); !errors.Is(err, broken) {
			t.Errorf("%s: %v", text[:n], err)
		}
	}
}

func TestNothingIsAllocated(t *testing.T) {
	frame, err := os.ReadFile("testdata/pods.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	var s scan.Scanner
	n := testing.AllocsPerRun(10, func() {
		s.Reset(frame)
		err = s.Members(func([]byte, int) error { return s.Skip() })
	})
	if n != 0 || err != nil {
		t.Errorf("%v allocations, %v", n, err)
	}
}

func FuzzLikeTheOthers(f *testing.F) {
	for _, text := range texts[:len(texts)-2] {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) < 1<<16 { // the depth is tested above
			check(t, text)
		}
	})
}
