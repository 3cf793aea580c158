package config

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/kubebridge/kubebridge/internal/base/textfile"
	"github.com/kubebridge/kubebridge/internal/bus"
)

var hostForm = regexp.MustCompile(`^[A-Za-z0-9_]([-A-Za-z0-9_.]{0,252})$`)

func (p *problems) status(s *Status) {
	if s.Listen != Off {
		_, port, err := net.SplitHostPort(s.Listen)
		if _, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil {
			p.add("status.listen", "%q is not host:port, or off", s.Listen)
		}
	}
	if s.History && s.Listen == Off {
		p.add("status.history", "it is shown on the status page, and status.listen is off: leave out one of the two")
	}
	for i, host := range s.Hosts {
		if !hostForm.MatchString(host) {
			p.add(fmt.Sprintf("status.hosts[%d]", i), "%q is not a host's name: leave out scheme and port, as in bridge.example.com", host)
		}
	}
	if (s.TLS.Cert == "") != (s.TLS.Key == "") {
		p.add("status.tls", "cert and key are both needed")
	}
	if s.Login.TokenFile != "" && s.Login.Kubernetes {
		p.add("status.login", "tokenFile and kubernetes: keep one of them")
	}
}

// statusSecurity records warnings about unsafe settings of the status server.
func (p *problems) statusSecurity(s *Status) {
	if name := s.Login.TokenFile; name != "" && p.secretFile("status.login.tokenFile", name, "would be admitted") {
		if text, err := textfile.Read(name); err == nil && len(strings.TrimSpace(text)) < leastKeyBytes {
			p.add("status.login.tokenFile", "%s: a token has at least %d bytes: use for example the output of `openssl rand -hex 32`", name, leastKeyBytes)
		}
	}
	if s.Login.Required() && s.TLS.Cert == "" && s.Listen != Off && !bus.IsLocal(s.Listen) {
		p.warn("status.login", "tokens are sent without TLS: others on the network can read them: set status.tls, or listen on 127.0.0.1")
	}
}
