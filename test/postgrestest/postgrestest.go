// Package postgrestest starts a PostgreSQL server for a test of the SQL example.
package postgrestest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Installed reports whether PostgreSQL is installed on this machine.
func Installed() bool {
	_, err := exec.LookPath(path("initdb"))
	return err == nil
}

// path returns the path of a PostgreSQL command on Debian, or the name alone if it is not there.
func path(name string) string {
	if found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name); err == nil && len(found) > 0 {
		return found[len(found)-1]
	}
	return name
}

// Start runs a server on a socket of its own until the test ends. It returns a function that runs SQL and returns the
// output: one row a line, without headings. An error in the SQL fails the test.
func Start(t *testing.T) func(sql string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	command := func(name string, args ...string) *exec.Cmd {
		c := exec.Command(path(name), args...) //nolint:gosec // the programs of PostgreSQL, with arguments of this package
		c.Dir = dir
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if os.Getuid() == 0 { // PostgreSQL refuses to run as root
			c.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
		}
		return c
	}
	if os.Getuid() == 0 {
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	data := filepath.Join(dir, "data")
	if out, err := command("initdb", "-D", data, "-U", "test", "-A", "trust", "-E", "UTF8", "--locale=C", "-N").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	// pg_ctl waits until the server accepts connections.
	if out, err := command("pg_ctl", "-D", data, "-w", "-t", "40", "-l", filepath.Join(dir, "log"),
		"-o", "-c listen_addresses='' -c fsync=off -k "+dir, "start").CombinedOutput(); err != nil {
		t.Fatalf("pg_ctl: %v\n%s", err, out)
	}
	t.Cleanup(func() { _ = command("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop").Run() })
	return func(sql string) string {
		t.Helper()
		psql := command("psql", "-h", dir, "-U", "test", "-d", "postgres", "-qAtX", "-v", "ON_ERROR_STOP=1")
		psql.Stdin = strings.NewReader(sql)
		out, err := psql.CombinedOutput()
		if err != nil {
			t.Fatalf("psql: %v\n%s", err, out)
		}
		return string(out)
	}
}
