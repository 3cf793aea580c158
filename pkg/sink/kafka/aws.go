package kafka

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/twmb/franz-go/pkg/sasl"
)

// Fields of the message for a broker of Amazon MSK: github.com/aws/aws-msk-iam-auth,
// "Details".
const (
	awsService   = "kafka-cluster"
	awsAction    = awsService + ":Connect"
	awsVersion   = "2020_10_22"
	awsValid     = "300" // seconds; a connection needs about one second
	awsUserAgent = "kubebridge"
)

// awsIAM is AWS_MSK_IAM: the client authenticates with a signed request, which is given to the broker and
// never sent to AWS.
type awsIAM struct {
	region      string
	credentials aws.CredentialsProvider // renews credentials before they expire
}

// newAWS uses credentials from the same sources as AWS's own tools, in the same order:
// the environment, a service account's token (IRSA), the shared files, EKS Pod
// Identity, the instance's metadata. They are fetched when a connection is made.
func newAWS(region string) (sasl.Mechanism, error) {
	opts := []func(*awsconfig.LoadOptions) error{
		// An idle connection kept for the next renewal would outlive the sink.
		awsconfig.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) { t.DisableKeepAlives = true })),
	}
	if region != "" {
		opts = append(opts, awsconfig.WithRegion(region))
	}
	c, err := awsconfig.LoadDefaultConfig(context.Background(), opts...)
	if err != nil {
		return nil, fmt.Errorf("sasl: read the settings of AWS: %w", err)
	}
	if c.Region == "" {
		return nil, errors.New("sasl.region: none given, and AWS_REGION is not set: set it to the region of the MSK cluster")
	}
	return awsIAM{c.Region, c.Credentials}, nil
}

// Name implements [sasl.Mechanism].
func (awsIAM) Name() string { return mechanismAWS }

// Authenticate implements [sasl.Mechanism].
func (a awsIAM) Authenticate(ctx context.Context, address string) (sasl.Session, []byte, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, nil, fmt.Errorf("sign for the broker: %w", err)
	}
	credentials, err := a.credentials.Retrieve(ctx)
	if err != nil {
		return nil, nil, &credentialsError{fmt.Errorf("get AWS credentials: %w", err)}
	}
	first, err := a.sign(ctx, credentials, host)
	return awsSession{}, first, err
}

// sign returns the message for a broker's host.
func (a awsIAM) sign(ctx context.Context, c aws.Credentials, host string) ([]byte, error) {
	query := url.Values{"Action": {awsAction}, "X-Amz-Expires": {awsValid}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "kafka://"+host+"/?"+query.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("sign for the broker: %w", err)
	}
	empty := sha256.Sum256(nil)
	signed, _, err := v4.NewSigner().PresignHTTP(ctx, c, req, hex.EncodeToString(empty[:]), awsService, a.region, time.Now())
	if err != nil {
		return nil, fmt.Errorf("sign for the broker: %w", err)
	}
	u, err := url.Parse(signed)
	if err != nil {
		return nil, errors.New("sign for the broker: no URL came of it") // an error with the URL would show the session's token
	}
	message := map[string]string{"version": awsVersion, "host": host, "user-agent": awsUserAgent}
	for name, values := range u.Query() {
		message[strings.ToLower(name)] = values[0]
	}
	return json.Marshal(message)
}

// awsSession is one authentication.
type awsSession struct{}

// Challenge implements [sasl.Session]: a broker that accepts sends a non-empty answer.
func (awsSession) Challenge(answer []byte) (bool, []byte, error) {
	if len(answer) == 0 {
		return false, nil, errors.New("the broker's answer to AWS_MSK_IAM is empty")
	}
	return true, nil, nil
}
