package event

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	kjson "sigs.k8s.io/json"
)

// TestSplitAgrees: what split finds is what encoding/json finds, also in texts that are wrong or have members twice.
func TestSplitAgrees(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	texts := [][]byte{
		[]byte(`{}`), []byte(` null `), []byte(`[]`), []byte(`{"data":1,"data":{"a":2},"id":"a","id":"b"}`), []byte(`{"d\u0061ta": [1, 2] ,"id":"x"}`),
		[]byte(`{"data":null}`), []byte(`{"id":"a"} {}`), []byte(`{"id":"a",}`), []byte(`{ "id" : "a" , "data" : "b" , "type":"c"}`),
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, text)
	}
	random, valid := rand.New(rand.NewPCG(1, 2)), 0
	for range 20000 {
		text := bytes.Clone(texts[random.IntN(len(texts))])
		for range random.IntN(3) {
			const tokens = `{}[]",:\ a0`
			text[random.IntN(len(text))] = tokens[random.IntN(len(tokens))]
		}
		type attributes struct{ ID, Type, Time any }
		type whole struct {
			attributes
			Data json.RawMessage
		}
		var want, got whole
		var wrong error
		if wrong = kjson.UnmarshalCaseSensitivePreserveInts(text, &struct {
			ID   *any             `json:"id"`
			Type *any             `json:"type"`
			Time *any             `json:"time"`
			Data *json.RawMessage `json:"data"`
		}{&want.ID, &want.Type, &want.Time, &want.Data}); wrong == nil {
			valid++
		}
		data, rest, err := split(text, "data")
		if err == nil {
			err = kjson.UnmarshalCaseSensitivePreserveInts(rest, &struct {
				ID   *any `json:"id"`
				Type *any `json:"type"`
				Time *any `json:"time"`
			}{&got.ID, &got.Type, &got.Time})
		}
		if (err == nil) != (wrong == nil) {
			t.Fatalf("%s: %v, encoding/json: %v", text, err, wrong)
		}
		if err != nil {
			continue
		}
		a, _ := json.Marshal([]any{got.ID, got.Type, got.Time})
		b, _ := json.Marshal([]any{want.ID, want.Type, want.Time})
		if !bytes.Equal(a, b) || string(data[0]) != string(want.Data) && string(data[0]) != "null" {
			t.Fatalf("%s: %s %s, encoding/json: %s %s", text, a, data[0], b, want.Data)
		}
	}
	if valid < 1000 {
		t.Errorf("only %d texts were valid", valid)
	}
}
