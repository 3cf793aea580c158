package kafkatest

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Token returns a token for a user of a cluster with Tokens (RFC 7515, appendix A.5: an unsecured JWS). When it expires, the broker closes
// connections that were authenticated with it.
func Token(user string, valid time.Duration) string {
	part := base64.RawURLEncoding.EncodeToString
	now := time.Now()
	claims := fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d}`, user, now.Unix(), now.Add(valid).Unix())
	return part([]byte(`{"alg":"none"}`)) + "." + part([]byte(claims)) + "."
}

// Allow permits a user operations on all topics whose names begin with a prefix.
func (c *Cluster) Allow(ctx context.Context, user, prefix string, ops ...kadm.ACLOperation) error {
	return c.AddACLs(ctx, kadm.NewACLs().Allow("User:"+user).AllowHosts().Topics(prefix).ResourcePatternType(kadm.ACLPatternPrefixed).Operations(ops...))
}

// Deny forbids a user operations on a topic, whatever else is allowed.
func (c *Cluster) Deny(ctx context.Context, user, topic string, ops ...kadm.ACLOperation) error {
	return c.AddACLs(ctx, kadm.NewACLs().Deny("User:"+user).DenyHosts().Topics(topic).Operations(ops...))
}

// AllowTransactions permits a user operations on all transactional ids that begin with a prefix.
func (c *Cluster) AllowTransactions(ctx context.Context, user, prefix string, ops ...kadm.ACLOperation) error {
	return c.AddACLs(ctx, kadm.NewACLs().Allow("User:"+user).AllowHosts().TransactionalIDs(prefix).ResourcePatternType(kadm.ACLPatternPrefixed).Operations(ops...))
}

// AllowCluster permits a user operations on the cluster.
func (c *Cluster) AllowCluster(ctx context.Context, user string, ops ...kadm.ACLOperation) error {
	return c.AddACLs(ctx, kadm.NewACLs().Allow("User:"+user).AllowHosts().Clusters().Operations(ops...))
}

// AddACLs creates the ACLs that b describes, and returns when they are in force.
func (c *Cluster) AddACLs(ctx context.Context, b *kadm.ACLBuilder) error {
	err := c.admin(func(a *kadm.Client) error {
		results, err := a.CreateACLs(ctx, b)
		for _, r := range results {
			err = errors.Join(err, r.Err)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("create ACLs: %w", err)
	}
	return c.Settle(ctx)
}

// Forget removes everything that Deny has forbidden a user on a topic.
func (c *Cluster) Forget(ctx context.Context, user, topic string) error {
	b := kadm.NewACLs().Deny("User:" + user).DenyHosts().Topics(topic).Operations().ResourcePatternType(kadm.ACLPatternLiteral)
	err := c.admin(func(a *kadm.Client) error {
		results, err := a.DeleteACLs(ctx, b)
		for _, r := range results {
			err = errors.Join(err, r.Err)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("delete ACLs: %w", err)
	}
	return c.Settle(ctx)
}

// Quota limits what a client (client.id) may produce, in bytes per second and broker; 0 removes the limit.
func (c *Cluster) Quota(ctx context.Context, clientID string, bytesPerSecond float64) error {
	entry := kadm.AlterClientQuotaEntry{
		Entity: kadm.ClientQuotaEntity{{Type: "client-id", Name: &clientID}},
		Ops:    []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: bytesPerSecond, Remove: bytesPerSecond == 0}},
	}
	err := c.admin(func(a *kadm.Client) error {
		results, err := a.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{entry})
		for _, r := range results {
			err = errors.Join(err, r.Err)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("set the quota of client %q: %w", clientID, err)
	}
	return c.Settle(ctx)
}

// SetPassword gives a user a new password, for all mechanisms; an empty password removes the user. Open connections stay open, as with any
// Kafka. For PLAIN, a broker reads the users from its configuration file when it is started, so the change applies from its next start on.
func (c *Cluster) SetPassword(ctx context.Context, user, password string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	users := maps.Clone(c.opts.Users)
	users[user] = password
	if password == "" {
		delete(users, user)
	}
	c.opts.Users = users
	for _, b := range c.brokers {
		if err := os.WriteFile(b.properties(), b.configure(), 0o600); err != nil {
			return fmt.Errorf("set the password of user %q: %w", user, err)
		}
	}
	for _, m := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} { // Kafka accepts a user only once per request
		var del []kadm.DeleteSCRAM
		var set []kadm.UpsertSCRAM
		if password == "" {
			del = append(del, kadm.DeleteSCRAM{User: user, Mechanism: m})
		} else {
			set = append(set, kadm.UpsertSCRAM{User: user, Mechanism: m, Iterations: 4096, Password: password})
		}
		err := c.admin(func(a *kadm.Client) error {
			altered, err := a.AlterUserSCRAMs(ctx, del, set)
			for _, r := range altered {
				err = errors.Join(err, r.Err)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("set the password of user %q: %w", user, err)
		}
	}
	return c.Settle(ctx)
}
