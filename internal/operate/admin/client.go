package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
)

// ErrNoBridge is returned when nothing listens on the socket.
var ErrNoBridge = errors.New("no bridge listens")

// Resync asks the bridge that listens on socket to emit every object of a
// resource again, to one sink or ("") to all. It returns the IDs of the
// collections whose resync has started. Errors are [ErrNoBridge], a *[NotFoundError], or
// another error of the request.
func Resync(ctx context.Context, socket, sink, resource string) (started []string, err error) {
	query := url.Values{"resource": {resource}}
	if sink != "" {
		query.Set("sink", sink)
	}
	a, err := ask(ctx, socket, http.MethodPost, resyncPath+"?"+query.Encode())
	return a.Started, err
}

// Checkpoint asks the bridge that listens on socket for the content of a sink's checkpoint. Errors are as for [Resync].
func Checkpoint(ctx context.Context, socket, sink string) (json.RawMessage, error) {
	a, err := ask(ctx, socket, http.MethodGet, checkpointPath+"?"+url.Values{"sink": {sink}}.Encode())
	return a.Checkpoint, err
}

func ask(ctx context.Context, socket, method, path string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://bridge"+path, nil)
	if err != nil {
		return answer{}, err
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return answer{}, fmt.Errorf("%s: %w there: is it running, on this machine and with this admin.socket?", socket, ErrNoBridge)
	case errors.Is(err, os.ErrPermission):
		return answer{}, fmt.Errorf("%s: the socket is another user's: run this as the bridge's user", socket)
	case err != nil:
		return answer{}, fmt.Errorf("ask the bridge on %s: %w", socket, errors.Unwrap(err)) // without the made-up URL
	}
	defer resp.Body.Close()
	var a answer
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return answer{}, fmt.Errorf("ask the bridge on %s: it answers %s and no JSON: another version, or another program: %w", socket, resp.Status, err)
	}
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return answer{}, &NotFoundError{Message: a.Error}
	case a.Error != "" || resp.StatusCode != http.StatusOK:
		return answer{}, fmt.Errorf("the bridge on %s: %s", socket, a.Error)
	}
	return a, nil
}
