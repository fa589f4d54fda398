package group

import (
	"errors"
	"log/slog"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/node/internal/locks"
	"github.com/dmutex/dmutex/trace"
)

// Log writes a record. A goroutine of its own passes it on: records are made under mutexes, and
// a handler may block, or ask the node for its Status.
func (g *Group) Log(level slog.Level, text string, attrs ...slog.Attr) {
	g.late.Log(level, text, g.own(attrs)...)
}

// LogOften is Log for records that a peer can trigger at will.
func (g *Group) LogOften(level slog.Level, text string, attrs ...slog.Attr) {
	g.late.Often(level, text, g.own(attrs)...)
}

// own prepends the attributes that all records of this node have.
func (g *Group) own(attrs []slog.Attr) (own []slog.Attr) {
	if self := g.Self(); self != dmutex.None {
		own = append(own, slog.Uint64("node", uint64(self)))
	}
	if g.cfg.Group != "" {
		own = append(own, slog.String("group", g.cfg.Group))
	}
	return append(own, attrs...)
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
	g.LogOften(slog.LevelWarn, "view is to be replaced", append(attrs, slog.Any("err", why))...)
}

// trace records what happened to the node or to a peer, beside what its locks do.
func (g *Group) trace(e trace.Event) {
	if r := g.cfg.Trace; r != nil {
		e.Time = int64(g.Mail.Now().Age())
		r.Record(&e)
	}
}
