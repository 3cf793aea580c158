package shape

import (
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

// Who mistypes a path is told where, and what to write: a path that silently
// matched nothing would let a secret out.
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
		`spec.containers[0].env`:       `column 17: "0" where a quote should be: elements are not told apart`,
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

func FuzzPath(f *testing.F) {
	for _, s := range []string{`spec.containers[*].env[*].value`, `**.a[~"x"]["y"]`, `spec..`, "\xff", `a["\"]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePath(text)
		if (err == nil) != (len(p) > 0) {
			t.Fatalf("%q: %v, %v", text, p, err)
		}
		if err != nil && !strings.Contains(err.Error(), "column ") {
			t.Fatalf("%q: the error does not tell where: %v", text, err)
		}
	})
}
