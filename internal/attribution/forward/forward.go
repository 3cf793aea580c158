// Package forward sends the audit records that a standby has accepted to the leader, which joins them with changes.
//
// Any replica may accept records: they are durable in its inbox before it answers. A record may leave that inbox when the leader has answered
// that it is durable there. So a record is lost only with the volume that it is on, and it can come to the leader twice.
package forward

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/inbox"
	"github.com/kubebridge/kubebridge/internal/attribution/webhook"
	"github.com/kubebridge/kubebridge/internal/base/pause"
	"github.com/kubebridge/kubebridge/internal/base/textfile"
)

const (
	// atOnce and atOnceBytes bound a request. The bytes are those of the records in memory, which are about those in JSON, and well below what the
	// leader accepts.
	atOnce      = 1000
	atOnceBytes = 4 << 20
	requestTime = 30 * time.Second
	retryEvery  = time.Second
)

// Options of a Forwarder. All are required, except From, Cert, Key and TokenFile. Files are read again when they are needed.
type Options struct {
	Inbox *inbox.Inbox
	From  inbox.Position // records behind it are sent. The zero value: all are
	// Sent is called when the records up to a position are with the leader. It may append an offset to Inbox.
	Sent func(inbox.Position)
	// Leader returns the address of the leader, host:port; "": it is not known.
	Leader    func() string
	CAFile    string // PEM: issues the certificates of all replicas
	Cert, Key string // PEM: the client's certificate; "": none
	TokenFile string // has the bearer token; "": none
	// Failed is called with each error, and with nil after each success.
	Failed func(error)
	// Lost is called if records of the inbox cannot be read any more.
	Lost func(error)
}

// Forwarder sends records.
type Forwarder struct {
	o      Options
	client *http.Client
}

// New returns a Forwarder.
func New(o Options) *Forwarder {
	f := &Forwarder{o: o}
	transport := &http.Transport{
		DialTLSContext: f.dial, ForceAttemptHTTP2: false, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 1, ResponseHeaderTimeout: requestTime,
	}
	f.client = &http.Client{Transport: transport, Timeout: requestTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return f
}

func (f *Forwarder) dial(ctx context.Context, network, address string) (net.Conn, error) {
	roots, err := textfile.CAs(f.o.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read the CA of replicas: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	if f.o.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.o.Cert, f.o.Key)
		if err != nil {
			return nil, fmt.Errorf("read the certificate of this replica: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	d := tls.Dialer{Config: config}
	return d.DialContext(ctx, network, address)
}

// Run sends the records of the inbox to the leader until ctx ends, and trims the inbox. It tries again after each error.
func (f *Forwarder) Run(ctx context.Context) {
	defer f.client.CloseIdleConnections()
	reader := f.o.Inbox.Reader(f.o.From)
	defer func() { _ = reader.Close() }()
	for ctx.Err() == nil {
		records, upTo, err := f.next(ctx, reader)
		if len(records) > 0 {
			f.send(ctx, records, upTo)
		}
		if err != nil && ctx.Err() == nil {
			f.o.Failed(err)
			pause.For(ctx, retryEvery)
		}
	}
}

// next waits for records, and returns them and the position behind them. It may return some and an error.
func (f *Forwarder) next(ctx context.Context, reader *inbox.Reader) (records []audit.Record, upTo inbox.Position, err error) {
	for size := 0; len(records) < atOnce && size < atOnceBytes; {
		item, err := reader.Next()
		var gap *inbox.GapError
		switch {
		case errors.As(err, &gap):
			f.o.Lost(err)
			continue
		case errors.Is(err, io.EOF) && len(records) > 0:
			return records, upTo, nil
		case errors.Is(err, io.EOF):
			if err := reader.Wait(ctx); err != nil {
				return nil, upTo, err
			}
			continue
		case err != nil:
			return records, upTo, err
		}
		if upTo = item.Position; item.Record != nil {
			records = append(records, *item.Record)
		}
		size += item.Size()
	}
	return records, upTo, nil
}

// send sends records until the leader has accepted them, and then trims the inbox.
func (f *Forwarder) send(ctx context.Context, records []audit.Record, upTo inbox.Position) {
	body, _ := json.Marshal(records) // strings, numbers and times always encode
	for ctx.Err() == nil {
		err := f.post(ctx, body)
		if err == nil {
			f.o.Sent(upTo)
			f.o.Failed(f.o.Inbox.Trim(upTo)) // the next call trims as well
			return
		}
		if ctx.Err() == nil {
			f.o.Failed(err)
			pause.For(ctx, retryEvery)
		}
	}
}

func (f *Forwarder) post(ctx context.Context, body []byte) error {
	leader := f.o.Leader()
	if leader == "" {
		return errors.New("no replica leads, or its address is not known")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+leader+webhook.RecordsPath, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("send audit records to %s: %w", leader, err)
	}
	request.Header.Set("Content-Type", "application/json")
	if f.o.TokenFile != "" {
		token, err := textfile.Read(f.o.TokenFile)
		if err != nil {
			return fmt.Errorf("read the token: %w", err)
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(token))
	}
	answer, err := f.client.Do(request)
	if err != nil {
		return fmt.Errorf("send audit records: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	why, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("send audit records to %s: %s: %s", leader, answer.Status, strings.TrimSpace(string(why)))
	}
	return nil
}
