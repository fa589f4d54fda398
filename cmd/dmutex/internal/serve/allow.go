package serve

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/dmutex/dmutex/internal/clientlink"
)

// permissions are the rules of a file that says who may take which locks.
type permissions struct {
	path        string
	certs, nats bool // how clients can be known
	rules       atomic.Pointer[[]rule]
}

// A rule is a line such as cert:alice lock invoices/*. How is lock, or share for those who only share.
type rule struct{ who, how, locks string }

var (
	lines = regexp.MustCompile(`^(\S.*?)\s+(lock|share)\s+(\S.*)$`)
	verbs = regexp.MustCompile(`\s(lock|share)\s`)
)

// load reads the file. If that fails, the rules are as before.
func (p *permissions) load() error {
	text, err := os.ReadFile(p.path)
	if err != nil {
		return fmt.Errorf("--allow: %w", err)
	}
	var rules []rule
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		wrong := func(why string) error { return fmt.Errorf("--allow=%s: line %d, %q: %s", p.path, i+1, line, why) }
		parts := lines.FindStringSubmatch(line)
		if parts == nil {
			return wrong("write WHO lock NAME or WHO share NAME, such as cert:alice lock invoices/*")
		}
		if strings.Contains(strings.ReplaceAll(line, "\t", " "), " #") {
			return wrong("write a comment in a line of its own")
		}
		if verbs.MatchString(" " + parts[3] + " ") {
			return wrong("lock or share stands in it twice, so it could mean two things: end WHO or NAME before that, with *")
		}
		switch kind, name, _ := strings.Cut(parts[1], ":"); {
		case parts[1] != "*" && (kind != "cert" && kind != "nats" || name == ""):
			return wrong("WHO is cert:NAME, nats:USER or *")
		case kind == "cert" && !p.certs:
			return wrong("clients have certificates only with --listen and --cert")
		case kind == "nats" && !p.nats:
			return wrong("clients are users of NATS only if --group is at NATS")
		}
		rules = append(rules, rule{parts[1], parts[2], parts[3]})
	}
	if rules == nil {
		return fmt.Errorf("--allow=%s: no line allows anything, such as cert:alice lock invoices/*", p.path)
	}
	p.rules.Store(&rules)
	return nil
}

// reload loads the file at every SIGHUP, until stop is called. Without a file, SIGHUP does nothing.
func (p *permissions) reload(log *slog.Logger) (stop func()) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGHUP)
	go func() {
		for range asked {
			if p.path == "" {
				log.Info("SIGHUP reads the file of --allow again, and there is none")
				continue
			}
			if err := p.load(); err != nil {
				log.Error("the file of --allow is not in force: the rules are as before", "err", err)
				continue
			}
			log.Info("the file of --allow is in force")
		}
	}()
	return func() {
		signal.Stop(asked)
		close(asked)
	}
}

// allow is for node.Clients: the name that a client gives itself proves nothing.
func (p *permissions) allow(conn net.Conn, _, lock string, shared bool) error {
	names := identities(conn)
	for _, r := range *p.rules.Load() {
		if slices.ContainsFunc(names, r.isFor) && (lock == "" || matches(r.locks, lock) && (shared || r.how == "lock")) {
			return nil
		}
	}
	who, may, how := cmp.Or(names[0], "a client without certificate"), "may take no lock", "lock"
	if strings.HasPrefix(who, "nats:") {
		who += ", which is the second word of its inbox,"
	}
	switch {
	case shared:
		may, how = fmt.Sprintf("may not share the lock %q", lock), "share"
	case lock != "":
		may = fmt.Sprintf("may not take the lock %q", lock)
	}
	return fmt.Errorf("%s %s: to change that, add the line %q to the file of --allow at each member, and send SIGHUP",
		who, may, cmp.Or(names[0], "*")+" "+how+" "+cmp.Or(lock, "NAME"))
}

func (r rule) isFor(name string) bool { return matches(r.who, name) }

// matches reports whether a name is that of the pattern, or begins with what is before its last *.
func matches(pattern, name string) bool {
	start, some := strings.CutSuffix(pattern, "*")
	return name == pattern || some && strings.HasPrefix(name, start)
}

// identities are the names by which a rule can know a client: those in its certificate, or its user
// of NATS. If there are none, it is the empty one.
func identities(conn net.Conn) (names []string) {
	if user := clientlink.Owner(conn.RemoteAddr()); user != "" {
		names = append(names, "nats:"+user)
	}
	if secure, ok := conn.(*tls.Conn); ok && len(secure.ConnectionState().PeerCertificates) > 0 {
		c := secure.ConnectionState().PeerCertificates[0]
		all := slices.Concat([]string{c.Subject.CommonName}, c.DNSNames, c.EmailAddresses)
		for _, u := range c.URIs {
			all = append(all, u.String())
		}
		for _, name := range all {
			if name != "" {
				names = append(names, "cert:"+name)
			}
		}
	}
	if names == nil {
		names = []string{""}
	}
	return names
}
