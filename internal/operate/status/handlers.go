package status

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
)

// policy is the Content-Security-Policy: the page loads resources only from this server.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// addPage registers handlers for the page, its resources and the report.
func addPage(mux *http.ServeMux, o Options, h *history) error {
	t, err := parsePage()
	if err != nil {
		return fmt.Errorf("parse the status page: %w", err)
	}
	present := func() Report {
		r := o.Report()
		h.complete(&r)
		return r
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		p := newPage(present(), newQuery(r.URL.Query()), h)
		if o.Changes != nil {
			p.linkChanges()
		}
		var body bytes.Buffer
		if err := t.Execute(&body, p); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		send(w, "text/html; charset=utf-8", http.StatusOK, body.Bytes())
	})
	sendReport := func(w http.ResponseWriter, r Report, code int) {
		body, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		send(w, "application/json", code, append(body, '\n'))
	}
	mux.HandleFunc("GET /api/status", func(w http.ResponseWriter, _ *http.Request) { sendReport(w, present(), http.StatusOK) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		r, code := present(), http.StatusOK
		if !r.Ready {
			code = http.StatusServiceUnavailable
		}
		if o.Serve.Login != nil { // this path needs no login, so it must not reveal the report
			send(w, "text/plain; charset=utf-8", code, []byte(r.Word()+"\n"))
			return
		}
		sendReport(w, r, code)
	})
	for name, kind := range map[string]string{"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"} {
		body, err := assets.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read the status page: %w", err)
		}
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, _ *http.Request) { send(w, kind, http.StatusOK, body) })
	}
	return addChanges(mux, o.Changes)
}

func send(w http.ResponseWriter, kind string, code int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}
