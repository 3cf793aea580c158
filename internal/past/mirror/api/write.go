package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
)

type form int

const (
	asObjects form = iota
	asTable
	asMetadata
)

// negotiate returns the first form of the Accept header that is served.
func negotiate(r *http.Request) (form, error) {
	accept := r.Header.Get("Accept")
	if accept == "" {
		return asObjects, nil
	}
	for _, part := range strings.Split(accept, ",") {
		kind, params, err := mime.ParseMediaType(part)
		if err != nil || kind != "application/json" && kind != "*/*" && kind != "application/*" {
			continue
		}
		switch as := params["as"]; {
		case as == "":
			return asObjects, nil
		case params["g"] != "meta.k8s.io" || params["v"] != "v1":
		case as == "Table":
			return asTable, nil
		case as == "PartialObjectMetadata" || as == "PartialObjectMetadataList":
			return asMetadata, nil
		}
	}
	return asObjects, notAcceptable("get")
}

func notAcceptable(verb string) error {
	return apierrors.NewGenericServerResponse(http.StatusNotAcceptable, verb, schema.GroupResource{}, "", "only the following media types are accepted: application/json", 0, true)
}

func (s *Server) write(w http.ResponseWriter, parts ...[]byte) bool {
	for _, b := range parts {
		if _, err := w.Write(b); err != nil {
			s.Log.Debug("answer not written", zap.Error(err))
			return false
		}
	}
	return true
}

func metadataOnly(body []byte) ([]byte, error) {
	var object struct {
		Metadata json.RawMessage `json:"metadata"`
	}
	if err := json.Unmarshal(body, &object); err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":%s}`, object.Metadata), nil
}

// listWriter writes a list or a table. The items come before the metadata, as in lists of custom resources.
type listWriter struct {
	s    *Server
	w    http.ResponseWriter
	q    *request
	form form

	warnings []string
	version  uint64
	next     string // the continue token
	partial  int

	begun bool
	n     int
	text  bytes.Buffer
}

func newListWriter(s *Server, w http.ResponseWriter, q *request, f form) *listWriter {
	return &listWriter{s: s, w: w, q: q, form: f}
}

var errGone = fmt.Errorf("the client is gone")

func (l *listWriter) add(x *store.Object) error {
	if x.Extent != store.Whole {
		l.partial++
	}
	body := x.Body
	switch l.form {
	case asTable:
		var err error
		if body, err = json.Marshal(l.q.table([]*store.Object{x}, 0, "", false, l.s.now()).Rows[0]); err != nil {
			return err
		}
	case asMetadata:
		var err error
		if body, err = metadataOnly(body); err != nil {
			return err
		}
	}
	if l.n++; l.n > 1 {
		l.text.WriteByte(',')
	}
	l.text.Write(body)
	if l.text.Len() < l.s.limits.bytes {
		return nil
	}
	return l.flush()
}

func (l *listWriter) flush() error {
	if !l.begun {
		l.begun = true
		if l.partial > 0 {
			l.warnings = append(l.warnings, fmt.Sprintf("%d objects are not whole: the bus has only a part of them", l.partial))
		}
		warn(l.w, l.warnings)
		l.w.Header().Set("Content-Type", "application/json")
		kind, version, items := l.q.kind.Kind.Kind+"List", l.q.kind.APIVersion, `"items"`
		switch l.form {
		case asMetadata:
			kind, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
		case asTable:
			columns, err := json.Marshal(l.q.table(nil, 0, "", true, l.s.now()).ColumnDefinitions)
			if err != nil {
				return err
			}
			kind, version, items = "Table", "meta.k8s.io/v1", `"columnDefinitions":`+string(columns)+`,"rows"`
		}
		if !l.s.write(l.w, fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,%s:[`, kind, version, items)) {
			return errGone
		}
	}
	if !l.s.write(l.w, l.text.Bytes()) {
		return errGone
	}
	l.text.Reset()
	return nil
}

func (l *listWriter) end() error {
	if l.next != "" {
		fmt.Fprintf(&l.text, `],"metadata":{"resourceVersion":"%d","continue":%q}}`, l.version, l.next)
	} else {
		fmt.Fprintf(&l.text, `],"metadata":{"resourceVersion":"%d"}}`, l.version)
	}
	l.text.WriteByte('\n')
	if err := l.flush(); err != nil {
		l.s.Log.Debug("list not written", zap.Error(err))
	}
	return nil
}
