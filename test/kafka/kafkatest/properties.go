package kafkatest

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

const clusterID = "a3ViZWJyaWRnZS10ZXN0cw" // any 16 bytes, in base64url

// configure returns the broker's server.properties.
func (b *Broker) configure() []byte {
	c := b.cluster
	var voters []string
	for _, v := range c.brokers {
		voters = append(voters, fmt.Sprintf("%d@%s", v.id, v.controller))
	}
	replicas := fmt.Sprint(min(3, len(c.brokers)))
	props := map[string]string{
		"process.roles":                  "broker,controller",
		"node.id":                        fmt.Sprint(b.id),
		"controller.quorum.voters":       strings.Join(voters, ","),
		"listeners":                      fmt.Sprintf("CLIENT://%s,ADMIN://%s,CONTROLLER://%s", b.client, b.admin, b.controller),
		"advertised.listeners":           fmt.Sprintf("CLIENT://%s,ADMIN://%s", b.Addr(), b.admin),
		"listener.security.protocol.map": "CLIENT:" + c.protocol() + ",ADMIN:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"inter.broker.listener.name":     "ADMIN",
		"controller.listener.names":      "CONTROLLER",
		"log.dirs":                       b.data(),

		"default.replication.factor":               replicas,
		"offsets.topic.replication.factor":         replicas,
		"transaction.state.log.replication.factor": replicas,
		"transaction.state.log.min.isr":            "1",
		"offsets.topic.num.partitions":             "1",
		"transaction.state.log.num.partitions":     "3",
		"group.initial.rebalance.delay.ms":         "0",

		// Brokers delete records that are older than their topic's retention. With the default, they look for such records every five
		// minutes, and a test that writes such records fails only sometimes. With these values, it always fails.
		"log.retention.check.interval.ms": "500",
		"log.initial.task.delay.ms":       "500",

		"auto.create.topics.enable":    "false",
		"auto.leader.rebalance.enable": "false", // leaders stay where MoveLeader puts them
		// A broker that was killed soon loses the leadership of its partitions.
		"broker.session.timeout.ms":    "3000",
		"broker.heartbeat.interval.ms": "500",

		// These values are for small machines.
		"num.network.threads":            "2",
		"num.io.threads":                 "4",
		"background.threads":             "2",
		"log.cleaner.dedupe.buffer.size": "4194304",
		"log.index.size.max.bytes":       "1048576",
	}
	if c.opts.ACLs {
		props["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
		props["super.users"] = "User:ANONYMOUS"
	}
	maps.Copy(props, c.saslProps())
	maps.Copy(props, c.tlsProps())
	maps.Copy(props, c.opts.Props)
	var text bytes.Buffer
	for _, k := range slices.Sorted(maps.Keys(props)) {
		fmt.Fprintf(&text, "%s=%s\n", k, strings.ReplaceAll(props[k], `\`, `\\`))
	}
	return text.Bytes()
}

// protocol returns the security protocol of the clients' listener.
func (c *Cluster) protocol() string {
	switch {
	case c.authenticates() && c.pki != nil:
		return "SASL_SSL"
	case c.authenticates():
		return "SASL_PLAINTEXT"
	case c.pki != nil:
		return "SSL"
	default:
		return "PLAINTEXT"
	}
}

func (c *Cluster) authenticates() bool { return c.opts.Users != nil || c.opts.Tokens }

func (c *Cluster) saslProps() map[string]string {
	if c.opts.Tokens {
		return map[string]string{ // without a configured handler, tokens need no signature
			"listener.name.client.sasl.enabled.mechanisms":      "OAUTHBEARER",
			"listener.name.client.oauthbearer.sasl.jaas.config": `org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";`,
		}
	}
	if c.opts.Users == nil {
		return nil
	}
	const scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
	return map[string]string{
		"listener.name.client.sasl.enabled.mechanisms":        "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		"listener.name.client.scram-sha-256.sasl.jaas.config": scram,
		"listener.name.client.scram-sha-512.sasl.jaas.config": scram,
		"listener.name.client.plain.sasl.jaas.config":         jaas(c.opts.Users),
	}
}

// jaas returns the JAAS configuration of PLAIN with the users.
func jaas(users map[string]string) string {
	text := "org.apache.kafka.common.security.plain.PlainLoginModule required"
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	for _, name := range slices.Sorted(maps.Keys(users)) {
		text += fmt.Sprintf(` user_%s="%s"`, name, quote.Replace(users[name]))
	}
	return text + ";"
}

func (c *Cluster) tlsProps() map[string]string {
	if c.pki == nil {
		return nil
	}
	props := map[string]string{
		"listener.name.client.ssl.keystore.type":     "PEM",
		"listener.name.client.ssl.keystore.location": filepath.Join(c.dir, serverPEM),
	}
	if c.opts.ClientCertificates {
		props["listener.name.client.ssl.client.auth"] = "required"
		props["listener.name.client.ssl.truststore.type"] = "PEM"
		props["listener.name.client.ssl.truststore.location"] = c.CA()
	}
	return props
}

// taken has the addresses that freeAddress has returned: brokers of clusters that run beside each other keep theirs while they are down.
var taken sync.Map

// freeAddress returns the address of a free port that no other broker of this process gets. The port is below those that the system assigns to
// outgoing connections, so that it stays free while its broker is down. Otherwise an outgoing connection could take it, even a connection to
// that port itself.
func freeAddress() (string, error) {
	var err error
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 16000+rand.IntN(16000))
		if _, known := taken.LoadOrStore(addr, true); known {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp", addr); err == nil {
			return addr, l.Close()
		}
	}
	return "", fmt.Errorf("find a free port: %w", err)
}
