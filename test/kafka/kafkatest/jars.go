package kafkatest

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

//go:embed pom.xml
var pom []byte

// VersionEnv names the environment variable with the version of Kafka that runs, such as "3.9.2". Without it, that is the
// version in pom.xml.
const VersionEnv = "KUBEBRIDGE_KAFKA_VERSION"

// Version returns the version of Kafka that the tests run.
func Version() string {
	if version := os.Getenv(VersionEnv); version != "" {
		return version
	}
	return string(regexp.MustCompile(`<kafka\.version>(.+)</kafka\.version>`).FindSubmatch(pom)[1])
}

// archive returns the path of an archive of parsed classes for the Java in PATH; "" if there is none.
func archive(jars string) string {
	java, err := exec.LookPath("java")
	if err != nil {
		return ""
	}
	if java, err = filepath.EvalSymlinks(java); err != nil {
		return ""
	}
	info, err := os.Stat(java)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(fmt.Append(nil, java, info.ModTime().UnixNano()))
	return filepath.Join(jars, fmt.Sprintf("classes-%x.jsa", sum[:4]))
}

// Jars returns the directory of the brokers' jars. If the user's cache directory has none of this version, it fetches them with Maven
// (about 45 MB), from the repositories of Maven's settings. Concurrent callers, in any process, wait for one another.
// ctx bounds waiting and fetching.
func Jars(ctx context.Context) (dir string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache directory: %w", err)
	}
	cache = filepath.Join(cache, "kubebridge")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("make cache directory: %w", err)
	}
	unlock, err := lockFile(ctx, filepath.Join(cache, "kafka.lock"))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, unlock()) }()

	sum := sha256.Sum256(pom)
	dir = filepath.Join(cache, fmt.Sprintf("kafka-%s-%x", Version(), sum[:4]))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("look up cached jars: %w", err)
	}
	return dir, fetch(ctx, dir)
}

func fetch(ctx context.Context, dir string) (err error) {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("fetch Kafka's jars: %w: run scripts/kafka.sh, or install Maven and Java 17 or newer, or set %s=host:port", err, Env)
	}
	fmt.Fprintf(os.Stderr, "kafkatest: fetching Kafka %s to %s\n", Version(), dir)
	began := time.Now()
	work, err := os.MkdirTemp("", "kubebridge-kafka-jars-")
	if err != nil {
		return fmt.Errorf("fetch Kafka's jars: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	project := filepath.Join(work, "pom.xml")
	if err := os.WriteFile(project, pom, 0o600); err != nil {
		return fmt.Errorf("fetch Kafka's jars: %w", err)
	}
	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return fmt.Errorf("fetch Kafka's jars: %w", err)
	}
	cmd := exec.CommandContext(ctx, mvn, "-B", "-q", "-f", project, "dependency:copy-dependencies",
		"-Dkafka.version="+Version(), "-DincludeScope=runtime", "-DoutputDirectory="+part)
	cmd.WaitDelay = 5 * time.Second // after a cancellation, do not wait longer for processes that Maven has started
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("fetch Kafka's jars with Maven: %w\n%s", err, out), os.RemoveAll(part))
	}
	if err := os.Rename(part, dir); err != nil {
		return fmt.Errorf("keep Kafka's jars: %w", err)
	}
	fmt.Fprintf(os.Stderr, "kafkatest: fetched in %s\n", time.Since(began).Round(time.Second))
	return nil
}

// lockFile waits for the exclusive lock on path, which the kernel releases when its holder ends.
func lockFile(ctx context.Context, path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open fetch lock: %w", err)
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f.Close, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("take fetch lock %s: %w", path, err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("wait for another fetch of Kafka: %w", ctx.Err()), f.Close())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
