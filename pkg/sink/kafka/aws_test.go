package kafka

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	franzaws "github.com/twmb/franz-go/pkg/sasl/aws"

	"github.com/kubebridge/kubebridge/pkg/sink"
)

const (
	awsKey, awsSecret, awsSession1 = "AKIDEXAMPLE", "wJalr-hunter2-EXAMPLEKEY", "session+token/hunter2=="
	mskHost                        = "b-1.demo.abc123.c2.kafka.eu-central-1.amazonaws.com"
)

// At a fixed time, the broker gets exactly the signature that another implementation, independent of AWS's, computes.
func TestAWSSigned(t *testing.T) {
	for name, token := range map[string]string{"of a user": "", "of a role": awsSession1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // the fake clock starts at 2000-01-01, midnight UTC
				a := awsIAM{"eu-central-1", credentials.NewStaticCredentialsProvider(awsKey, awsSecret, token)}
				got := shown(t, a, mskHost+":9098")
				want := map[string]string{
					"version": "2020_10_22", "host": mskHost, "user-agent": "kubebridge", "action": "kafka-cluster:Connect",
					"x-amz-algorithm": "AWS4-HMAC-SHA256", "x-amz-signedheaders": "host", "x-amz-expires": "300",
					"x-amz-credential": awsKey + "/20000101/eu-central-1/kafka-cluster/aws4_request", "x-amz-date": "20000101T000000Z",
				}
				if token != "" {
					want["x-amz-security-token"] = token
				}
				other := franzaws.Auth{AccessKey: awsKey, SecretKey: awsSecret, SessionToken: token}.AsManagedStreamingIAMMechanism()
				_, first, err := other.Authenticate(t.Context(), mskHost+":9098")
				if err != nil {
					t.Fatal(err)
				}
				theirs := map[string]string{}
				if err := json.Unmarshal(first, &theirs); err != nil {
					t.Fatal(err)
				}
				want["x-amz-signature"] = theirs["x-amz-signature"]
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("what is shown (-want +got):\n%s", d)
				}
				time.Sleep(time.Hour)
				if later := shown(t, a, mskHost+":9098"); later["x-amz-date"] != "20000101T010000Z" || later["x-amz-signature"] == got["x-amz-signature"] {
					t.Error("an hour later the same is shown")
				}
			})
		})
	}
}

// shown returns the fields of a mechanism's first message.
func shown(t *testing.T, a awsIAM, address string) map[string]string {
	t.Helper()
	_, first, err := a.Authenticate(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	if err := json.Unmarshal(first, &got); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestAWSAnswer(t *testing.T) {
	t.Parallel()
	if done, _, err := (awsSession{}).Challenge([]byte(`{"version":"2020_10_22"}`)); !done || err != nil {
		t.Errorf("an accepted signature: %t, %v", done, err)
	}
	if done, _, err := (awsSession{}).Challenge(nil); done || err == nil {
		t.Errorf("an empty answer: %t, %v", done, err)
	}
}

// amazon serves credentials like AWS, each valid until a given time.
type amazon struct {
	*httptest.Server
	mu    sync.Mutex
	until time.Time
	given int
}

func startAmazon(t *testing.T) *amazon {
	a := &amazon{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		until := a.until.UTC().Format(time.RFC3339)
		switch _ = r.ParseForm(); {
		case r.Form.Get("Action") == "AssumeRoleWithWebIdentity" && r.Form.Get("WebIdentityToken") == "from-the-cluster": // STS
			a.given++
			fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Credentials>
<AccessKeyId>key-%d</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>%s</Expiration>
</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`, a.given, until)
		case r.URL.Path == "/v1/credentials" && r.Header.Get("Authorization") == "from-the-cluster": // EKS Pod Identity
			a.given++
			fmt.Fprintf(w, `{"AccessKeyId":"key-%d","SecretAccessKey":"s","Token":"t","Expiration":%q}`, a.given, until)
		case r.URL.Path == "/latest/api/token": // the instance metadata service, version 2
			w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "21600")
			fmt.Fprint(w, "imds")
		case strings.HasSuffix(r.URL.Path, "/security-credentials/"):
			fmt.Fprint(w, "role")
		case strings.HasSuffix(r.URL.Path, "/security-credentials/role") && r.Header.Get("X-Aws-Ec2-Metadata-Token") == "imds":
			a.given++
			fmt.Fprintf(w, `{"Code":"Success","Type":"AWS-HMAC","AccessKeyId":"key-%d","SecretAccessKey":"s","Token":"t","Expiration":%q}`, a.given, until)
		default:
			http.Error(w, `{"code":"AccessDenied","message":"no"}`, http.StatusForbidden)
		}
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *amazon) lasting(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.until = time.Now().Add(d)
}

// noAWS hides any AWS settings of this machine.
func noAWS(t *testing.T) {
	for _, v := range os.Environ() {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, value) // t.Setenv restores the value after the test
			os.Unsetenv(name)
		}
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

// Credentials are found where AWS provides them, used until they expire, and then renewed.
func TestAWSCredentials(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("from-the-cluster"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, set := range map[string]func(t *testing.T, url string){
		"service account": func(t *testing.T, url string) {
			t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token)
			t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/bridge")
			t.Setenv("AWS_ENDPOINT_URL_STS", url)
		},
		"pod identity": func(t *testing.T, url string) {
			t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url+"/v1/credentials")
			t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token)
		},
		"instance": func(t *testing.T, url string) {
			t.Setenv("AWS_EC2_METADATA_DISABLED", "false")
			t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
		},
	} {
		t.Run(name, func(t *testing.T) {
			noAWS(t)
			a := startAmazon(t)
			set(t, a.URL)
			t.Setenv("AWS_REGION", "eu-central-1")
			m, err := newAWS("")
			if err != nil {
				t.Fatal(err)
			}
			a.lasting(-time.Minute)
			if key := shown(t, m.(awsIAM), mskHost+":9098")["x-amz-credential"]; !strings.HasPrefix(key, "key-1/") {
				t.Errorf("the first connection has %s", key)
			}
			a.lasting(time.Hour) // the first ones have expired
			for range 2 {
				if key := shown(t, m.(awsIAM), mskHost+":9098")["x-amz-credential"]; !strings.HasPrefix(key, "key-2/") {
					t.Errorf("a later connection has %s", key)
				}
			}
		})
	}

	t.Run("environment", func(t *testing.T) {
		noAWS(t)
		t.Setenv("AWS_ACCESS_KEY_ID", awsKey)
		t.Setenv("AWS_SECRET_ACCESS_KEY", awsSecret)
		m, err := newAWS("us-west-2")
		if err != nil {
			t.Fatal(err)
		}
		if key := shown(t, m.(awsIAM), "private.example:9098")["x-amz-credential"]; !strings.HasPrefix(key, awsKey+"/") || !strings.Contains(key, "/us-west-2/") {
			t.Errorf("the connection has %s", key)
		}
	})

	t.Run("none", func(t *testing.T) {
		noAWS(t)
		if _, err := newAWS(""); err == nil || !strings.Contains(err.Error(), "sasl.region: none given") {
			t.Errorf("without a region: %v", err)
		}
		m, err := newAWS("eu-central-1")
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = m.Authenticate(t.Context(), mskHost+":9098")
		if !errors.As(err, new(*credentialsError)) {
			t.Errorf("without credentials: %v", err)
		}
	})
}

// Both clients send the broker the required fields, sign for the broker's own host, and print no secret when it refuses. The
// broker is a stand-in that speaks the mechanism, because MSK is not available in tests.
func TestAWSOnTheWire(t *testing.T) {
	noAWS(t)
	t.Setenv("AWS_ACCESS_KEY_ID", awsKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", awsSecret)
	t.Setenv("AWS_SESSION_TOKEN", awsSession1)
	web := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate, good for 127.0.0.1
	defer web.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}
	if err := os.WriteFile(ca, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	b := startBus(t, kfake.TLS(&tls.Config{Certificates: web.TLS.Certificates}))
	var refuse atomic.Bool
	var seen atomic.Int32
	b.ControlKey(int16(kmsg.SASLHandshake), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		resp := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
		resp.SupportedMechanisms = []string{mechanismAWS}
		if m := req.(*kmsg.SASLHandshakeRequest).Mechanism; m != mechanismAWS {
			t.Errorf("the mechanism is %s", m)
		}
		return resp, nil, true
	})
	b.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		seen.Add(1)
		resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		got := map[string]string{}
		if err := json.Unmarshal(req.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes, &got); err != nil || got["host"] != "127.0.0.1" || got["x-amz-security-token"] != awsSession1 {
			t.Errorf("a client shows host %q (%v)", got["host"], err)
		}
		resp.SASLAuthBytes = []byte(`{"version":"2020_10_22","request-id":"1"}`)
		if refuse.Load() {
			resp.ErrorCode, resp.ErrorMessage = kerr.SaslAuthenticationFailed.Code, kmsg.StringPtr("[1]: Access denied")
		}
		return resp, nil, true
	})
	c := b.config()
	c.Delivery = exactlyOnce
	c.SASL = SASL{Mechanism: mechanismAWS, Region: "eu-central-1"}
	c.TLS = TLS{Enabled: true, CA: ca}
	x := openExact(t, c)
	n := number("t")
	deliver(t, x, n.batch(50, 10))
	if p := b.PartitionInfos("t"); len(p) != 4 {
		t.Errorf("the topic has %d partitions, want 4", len(p))
	}
	if seen.Load() < 2 {
		t.Errorf("%d clients authenticated, want both", seen.Load())
	}
	refuse.Store(true)
	refused := newExact(t, c)
	defer refused.Close()
	err := refused.Open(t.Context(), nil)
	if !errors.As(err, new(*sink.RefusedError)) || !strings.Contains(err.Error(), "kafka-cluster:Connect") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("Open: %v, want a RefusedError without secrets", err)
	}
}
