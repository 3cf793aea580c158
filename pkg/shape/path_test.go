package shape

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestPaths(t *testing.T) {
	for text, want := range map[string]string{
		`status`:                             `["status"]`,
		`spec.containers[*].env[*].value`:    `["spec"]["containers"][*]["env"][*]["value"]`,
		`spec.containers.*.env.*.value`:      `["spec"]["containers"][*]["env"][*]["value"]`,
		`metadata.annotations["a.b/c"]`:      `["metadata"]["annotations"]["a.b/c"]`,
		`metadata.annotations['a.b/c'].x`:    `["metadata"]["annotations"]["a.b/c"]["x"]`,
		`["metadata"]["a\"b"]`:               `["metadata"]["a\"b"]`,
		`data.*`:                             `["data"][*]`,
		`*`:                                  `[*]`,
		`**.password`:                        `[**]["password"]`,
		`spec.**[~"(?i)token"].*`:            `["spec"][**][~"(?i)token"][*]`,
		`data[~"\.key$|]"]`:                  `["data"][~"\\.key$|]"]`,
		`spec.x-y_Z0`:                        `["spec"]["x-y_Z0"]`,
		`metadata.labels["größe"][~'^a\'b']`: `["metadata"]["labels"]["größe"][~"^a'b"]`,
	} {
		p, err := parsePath(text)
		if err != nil || p.String() != want {
			t.Errorf("%s: got %s, %v; want %s", text, p, err, want)
		}
	}
}

// The error for a mistyped path names the position and what to write instead. A path that silently matched nothing would
// publish a secret.
func TestWrongPaths(t *testing.T) {
	for text, want := range map[string]string{
		``:                             `column 1: the end where a name, * or [ should be: for example spec`,
		`.spec`:                        `column 1: "." where a name, * or [ should be: a path begins with a member's name`,
		`$.spec`:                       `column 1: "$" where`,
		`/spec/nodeName`:               `column 1: "/" where a name, * or [ should be: a path begins with a member's name and goes on with dots`,
		`spec/nodeName`:                `column 5: "/" where . or [ should be: a name with other characters`,
		`spec.`:                        `column 6: the end where a name`,
		`spec..x`:                      `column 6: "." where a name`,
		`spec.[*]`:                     `column 6: "[" where a name, * or [ should be: no dot stands in front of [`,
		`spec.containers[0].env`:       `column 17: "0" where a quote should be: elements cannot be selected`,
		`spec.containers[name]`:        `column 17: "n" where a quote should be: in brackets stands *, a name in quotes`,
		`spec.containers[]`:            `column 17: "]" where a quote`,
		`spec.containers[`:             `column 17: the end where a quote`,
		`spec.containers[*`:            `column 18: the end where ] should be`,
		`spec.containers[**]`:          `column 18: "*" where ] should be: all elements are [*]`,
		`spec.containers[*]env`:        `column 19: "e" where . or [ should be`,
		`spec["a]`:                     `column 6: the quote that begins here has no end`,
		`größe.x`:                      `column 3: "ö" where . or [ should be`,
		`data["größe"]x`:               `column 14: "x" where`,
		`data[~"("]`:                   `column 7: the pattern is no regular expression (RE2): error parsing regexp: missing closing )`,
		`data[~x]`:                     `column 7: "x" where a quote`,
		`metadata.annotations.a.b/c`:   `column 25: "/" where . or [ should be`,
		`spec.**`:                      `column 8: a name, * or [ expected behind **`,
		`**`:                           `column 3: a name`,
		`spec.**.**.x`:                 `column 8: a second ** behind **`,
		`spec x`:                       `column 5: " " where . or [`,
		`spec.containers[*].env[*].*x`: `column 28: "x" where . or [`,
	} {
		p, err := parsePath(text)
		if err == nil || p != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, %v; want %s", text, p, err, want)
		}
	}
}

// FuzzPath: a path is parsed like a simple implementation of the grammar parses it, and finds in an object the same values as a
// search of all values.
func FuzzPath(f *testing.F) {
	f.Add(`spec.containers[*].env[*].value`, `{"spec":{"containers":[{"env":[{"value":"a"},{"value":{}}]},{"env":{"b":{"value":1}}}]}}`)
	f.Add(`**.a[~"^x"]["y"]`, `{"a":{"x1":{"y":"a"}},"b":[{"a":{"xx":{"y":null,"z":1}}}]}`)
	f.Add(`metadata.**.name`, `{"metadata":{"name":"n","ownerReferences":[{"name":"o"}],"annotations":{"`+lastApplied+`":"{\"metadata\":{\"name\":\"m\"}}"}}}`)
	f.Add(`*.*['a\\'"b']`, `{"a":[{"a\\'\"b":1}],"spec":{"b":2}}`)
	for _, s := range []string{`spec..`, "\xff", `a["\"]`, `**.**.a`, `a.**`, `a[~"("]`, `*a`, `[*]b`, `a.[b]`, `a["b]`} {
		f.Add(s, `{}`)
	}
	f.Fuzz(func(t *testing.T, text, raw string) {
		p, err := parsePath(text)
		want, ok := plainPath(text)
		if (err == nil) != ok || p.String() != want {
			t.Fatalf("%q: %s, %v; want %s", text, p, err, want)
		}
		if err != nil {
			if !strings.Contains(err.Error(), "column ") {
				t.Fatalf("%q: the error does not say where: %v", text, err)
			}
			return
		}
		rule := Rule{Paths: []string{text}}
		if _, err := Compile([]Rule{rule}, Secrets{}); err != nil {
			if !p.identity() {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if len(p) < 10 && 0 < len(raw) && len(raw) < 1<<12 { // the model is slow
			likeModel(t, t, []Rule{rule}, []byte(raw))
		}
	})
}

// plainPath parses a path piece by piece, as docs/configuration.md describes it.
func plainPath(text string) (string, bool) {
	var out []string
	word := regexp.MustCompile(`^(\*\*|\*|[-_A-Za-z0-9]+)`)
	for rest := text; len(out) == 0 || rest != ""; {
		inside, brackets := strings.CutPrefix(rest, "[")
		switch {
		case !brackets:
			if len(out) > 0 {
				var dot bool
				if rest, dot = strings.CutPrefix(rest, "."); !dot {
					return "", false
				}
			}
			w := word.FindString(rest)
			rest = rest[len(w):]
			switch w {
			case "":
				return "", false
			case "*", "**":
				out = append(out, "["+w+"]")
			default:
				out = append(out, "["+strconv.Quote(w)+"]")
			}
		case strings.HasPrefix(inside, "*]"):
			out, rest = append(out, "[*]"), inside[2:]
		default:
			kind := ""
			if strings.HasPrefix(inside, "~") {
				kind, inside = "~", inside[1:]
			}
			if inside == "" || inside[0] != '"' && inside[0] != '\'' {
				return "", false
			}
			quote := inside[:1]
			end := 1 // find the closing quote: the next one without a backslash before it
			for end < len(inside) && (inside[end:end+1] != quote || end > 1 && inside[end-1] == '\\') {
				end++
			}
			if !strings.HasPrefix(inside[min(end, len(inside)):], quote+"]") {
				return "", false
			}
			name := strings.ReplaceAll(inside[1:end], `\`+quote, quote)
			if kind != "" {
				if _, err := regexp.Compile(name); err != nil {
					return "", false
				}
			}
			out, rest = append(out, "["+kind+strconv.Quote(name)+"]"), inside[end+2:]
		}
		if n := len(out); n > 1 && out[n-1] == "[**]" && out[n-2] == "[**]" {
			return "", false
		}
	}
	if out[len(out)-1] == "[**]" {
		return "", false
	}
	return strings.Join(out, ""), true
}
