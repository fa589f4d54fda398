package world

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/certtest"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// A stranger may connect with the port of a member and say anything: a scanner, another program, a member that is set up
// wrongly, or one of another version.

// scan lets a stranger connect with the port for members, often enough to fill the member's door, and say something that is
// not right, or nothing. It learns nothing, and no member is disturbed.
func (w *World) scan(p *process) {
	w.count("a stranger connects")
	stranger := w.machineOf("stranger").Process()
	self := p.node.Self()
	const unknown, mark = dmutex.NodeID(1 << 20), "dmutex\x00\x02"
	greeting := func(mark string, from, to dmutex.NodeID, life uint64) []byte {
		b := []byte(mark)
		for _, v := range []uint64{uint64(from), uint64(to), life, 0} {
			b = binary.BigEndian.AppendUint64(b, v)
		}
		return b
	}
	all := [][]byte{
		nil, []byte("GET / HTTP/1.1\r\n\r\n"), greeting("dmutex\x00\x07", unknown, self, 1), greeting(mark, unknown, self, 1)[:20],
		greeting(mark, unknown, self, 1), greeting(mark, dmutex.None, self, 1), greeting(mark, unknown, unknown, 1),
		greeting(mark, max(self, 1)-1, self, 1), greeting(mark, self+1, self, 1<<63),
	}
	n := 1
	if w.Luck.IntN(4) == 0 {
		n = 300
	}
	says := all[w.Luck.IntN(len(all))]
	ctx, cancel := context.WithTimeout(context.Background(), leaseOf)
	for range n {
		w.running.Go(func() {
			nc, err := stranger.Dial(ctx, p.at.ip+":7000")
			if err != nil {
				return
			}
			defer nc.Close()
			_, _ = nc.Write(says)
			_ = nc.SetReadDeadline(time.Now().Add(leaseOf))
			if n, _ := nc.Read(make([]byte, 100)); n > 0 && !w.secure { // with TLS it gets an alert
				w.Wrong("%s answers a stranger that says %q", p.who, says)
			}
		})
	}
	time.Sleep(w.UpTo(leaseOf))
	w.running.Go(func() {
		time.Sleep(leaseOf)
		cancel()
		stranger.Kill()
	})
}

// publishes lets another program publish on the subject of frames to a member. They are refused, and change nothing.
func (w *World) publishes(p *process) {
	other := w.some().now.node.Self()
	if other == dmutex.None {
		return
	}
	w.count("a stranger publishes")
	w.differs.Store(true)
	const hello, ack, data, binary = 1, 3, 4, 0xc4
	all := [][]byte{
		{hello, 1, 1, 1, 0, binary, 9, 'x'}, {hello, 1, 1, 1, 0, binary, 1, 'x'}, {hello, 90, 99, 1, 0, binary, 1, 'x'},
		{ack, 1, 1, 1, 0}, {ack, 0, 1, 1}, {ack, 0xc0, 1, 1}, {ack, 0xcd, 0, 1}, {ack, 0xcd, 0, 1, 1, 1}, {ack, 1},
		{data, 1, 1, 1, 0}, {data, 1, 1, 1, 0, binary, 0}, {data, 0xcf, 255, 255, 255, 255, 255, 255, 255, 255, 1, 1, 0, binary, 1, 'x'},
		{99, 1, 1}, []byte("{}"),
	}
	stranger := w.process("stranger")
	for range 1 + w.Luck.IntN(10) {
		_ = stranger.nc.Publish(fmt.Sprintf("world.members.%v.%v", p.node.Self(), other), all[w.Luck.IntN(len(all))])
		time.Sleep(w.UpTo(leaseOf / 100))
	}
	stranger.kill()
}

// blunders gives a member a certificate, or a rule, that is refused, and changes nothing.
func (w *World) blunders(s *slot, p *process) {
	link, ok := p.hop.(*tcplink.Link)
	if !ok {
		return
	}
	w.count("a wrong certificate")
	self := s.place
	if !w.strict {
		self = dmutex.None
	}
	issued := func(by *certtest.Authority, template *x509.Certificate) func(*tls.Config) {
		return func(c *tls.Config) { c.Certificates = []tls.Certificate{by.Issue(template)} }
	}
	named := func(nodes ...string) *x509.Certificate {
		template := &x509.Certificate{DNSNames: []string{"elsewhere"}}
		for _, n := range nodes {
			template.URIs = append(template.URIs, &url.URL{Scheme: "dmutex", Opaque: "node:" + n})
		}
		return template
	}
	all := []func(*tls.Config){
		issued(certtest.New(w.t), named((self + 1).String())),
		issued(w.authority, named((self + 1).String())),
		issued(w.authority, named()),
		issued(w.authority, named("1", "2")),
		issued(w.authority, named("one")),
		func(c *tls.Config) { c.Certificates = nil },
		func(c *tls.Config) { c.RootCAs = nil },
		func(c *tls.Config) { c.InsecureSkipVerify = true },
		func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 },
	}
	c := p.certificates(self)
	all[w.Luck.IntN(len(all))](c)
	if err := link.SetTLS(c); !errors.Is(err, dmutex.ErrMisuse) {
		w.Wrong("%s takes a certificate that is wrong: %v", p.who, err)
	}
}
