package group

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/latelog"
	"github.com/dmutex/dmutex/node/internal/locks"
)

// A logger writes what happens to a node, in a goroutine of its own: records are made
// under mutexes, and neither a handler that blocks nor one that asks the node
// for its Status may hold up the node. A nil logger writes nothing.
type logger struct {
	late  *latelog.Log
	out   *slog.Logger   // to late
	often *slog.Logger   // to late, for records that a peer can trigger at will
	self  *atomic.Uint64 // the node's number
	group string
}

func newLogger(cfg *Config, self *atomic.Uint64) *logger {
	late := latelog.New(cfg.Logger.Handler())
	return &logger{late, slog.New(late), slog.New(late.Often()), self, cfg.Group}
}

// Log writes a record.
func (g *Group) Log(level slog.Level, text string, attrs ...slog.Attr) {
	if l := g.log; l != nil {
		l.write(l.out, level, text, attrs)
	}
}

// logOften is Log for records that a peer can trigger at will.
func (g *Group) logOften(level slog.Level, text string, attrs ...slog.Attr) {
	if l := g.log; l != nil {
		l.write(l.often, level, text, attrs)
	}
}

func (l *logger) write(to *slog.Logger, level slog.Level, text string, attrs []slog.Attr) {
	var all []slog.Attr
	if self := l.self.Load(); self != 0 {
		all = append(all, slog.Uint64("node", self))
	}
	if l.group != "" {
		all = append(all, slog.String("group", l.group))
	}
	to.LogAttrs(context.Background(), level, text, append(all, attrs...)...)
}

// peerAttr has the number of a peer, and its name if that is known.
func (g *Group) peerAttr(id dmutex.NodeID) slog.Attr {
	return g.Named(id, slog.Uint64("peer", uint64(id)))
}

// Named adds the name of a member to an attribute, if it is known.
func (g *Group) Named(id dmutex.NodeID, attr slog.Attr) slog.Attr {
	if name := g.About(id).Name; name != "" {
		return slog.Group("", attr, slog.String("name", name))
	}
	return attr
}

// logTrouble logs why a view is to be replaced.
func (g *Group) logTrouble(why error) {
	var attrs []slog.Attr
	if e, ok := errors.AsType[*locks.Error](why); ok && e.Peer != dmutex.None {
		attrs = append(attrs, g.peerAttr(e.Peer))
	}
	if e, ok := errors.AsType[*locks.Error](why); ok && e.Lock != "" {
		attrs = append(attrs, slog.String("lock", e.Lock))
	}
	g.logOften(slog.LevelWarn, "view is to be replaced", append(attrs, slog.Any("err", why))...)
}
