package natsnet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A session is what the server knows of a client.
type session struct {
	said    []byte // and not understood yet
	greeted bool
	options struct {
		Echo         bool `json:"echo"`
		NoResponders bool `json:"no_responders"`
	}
	subs []*subscription
}

type subscription struct {
	sid, queue string
	tokens     []string
}

func (s *subscription) matches(subject []string) bool {
	for i, t := range s.tokens {
		switch {
		case t == ">":
			return len(subject) > i
		case i == len(subject) || t != "*" && t != subject[i]:
			return false
		}
	}
	return len(s.tokens) == len(subject)
}

// begin is the first word of the server.
func (c *conn) begin() {
	c.options.Echo = true
	c.tell(fmt.Sprintf(`INFO {"server_id":"MEMORY","version":"2.15.2","proto":1,"headers":true,"max_payload":%d}`, maxPayload))
}

// tell says a line to the client.
func (c *conn) tell(text string) { c.down.send([]byte(text + "\r\n")) }

// take takes what a client says, the end if that is nothing.
func (c *conn) take(b []byte) {
	if len(b) == 0 {
		c.end()
		return
	}
	c.said = append(c.said, b...)
	for {
		head, rest, whole := bytes.Cut(c.said, []byte("\r\n"))
		if !whole {
			return
		}
		line := string(head)
		word, args, _ := strings.Cut(line, " ")
		fields := strings.Fields(args)
		switch {
		case word == "CONNECT" && json.Unmarshal([]byte(args), &c.options) == nil:
		case word == "PING":
			c.tell("PONG")
			c.greeted = true
		case word == "PONG":
		case word == "SUB" && (len(fields) == 2 || len(fields) == 3):
			sub := &subscription{tokens: strings.Split(fields[0], "."), sid: fields[len(fields)-1]}
			if len(fields) == 3 {
				sub.queue = fields[1]
			}
			c.subs = append(c.subs, sub)
		case word == "UNSUB" && len(fields) == 1:
			c.subs = slices.DeleteFunc(c.subs, func(s *subscription) bool { return s.sid == fields[0] })
		case word == "PUB" && (len(fields) == 2 || len(fields) == 3), word == "HPUB" && (len(fields) == 3 || len(fields) == 4):
			size, err := strconv.Atoi(fields[len(fields)-1])
			if err != nil || size > maxPayload {
				c.tell("-ERR 'Maximum Payload Violation'")
				c.end()
				return
			}
			if len(rest) < size+2 {
				return
			}
			m := message{subject: fields[0], payload: slices.Clone(rest[:size])}
			rest = rest[size+2:]
			sizes := 1
			if word == "HPUB" {
				sizes = 2
			}
			m.sizes = fields[len(fields)-sizes:]
			if len(fields) > 1+sizes {
				m.reply = fields[1]
			}
			c.publish(m)
		default:
			c.tell("-ERR 'Unknown Protocol Operation'")
			c.end()
			return
		}
		c.said = rest
	}
}

// A message is what was published.
type message struct {
	subject, reply string
	sizes          []string // of the headers, if there are some, and of all
	payload        []byte
}

// publish carries a message to its subscribers, of each queue group to one.
func (c *conn) publish(m message) {
	type member struct {
		c   *conn
		sub *subscription
	}
	groups, names := make(map[string][]member), []string(nil)
	subject, told := strings.Split(m.subject, "."), false
	for _, to := range slices.Clone(c.server.conns) {
		if to == c && !c.options.Echo || c.server.cuts[[2]*Way{c.way, to.way}] {
			continue
		}
		for _, sub := range to.subs {
			switch {
			case !sub.matches(subject):
			case sub.queue == "":
				told = true
				to.hand(sub, m)
			default:
				if groups[sub.queue] == nil {
					names = append(names, sub.queue)
				}
				groups[sub.queue] = append(groups[sub.queue], member{to, sub})
			}
		}
	}
	for _, name := range names {
		told = true
		one := groups[name][c.server.luck.IntN(len(groups[name]))]
		one.c.hand(one.sub, m)
	}
	if !told && m.reply != "" && c.options.NoResponders {
		c.nobody(m)
	}
}

// hand gives a message to one subscriber, unless it is too slow, or the message is lost.
func (c *conn) hand(sub *subscription, m message) {
	if s := c.server; s.loses > 0 && s.luck.Float64() < s.loses {
		return
	}
	word := "MSG"
	if len(m.sizes) == 2 {
		word = "HMSG"
	}
	head := []string{word, m.subject, sub.sid}
	if m.reply != "" {
		head = append(head, m.reply)
	}
	c.down.send(fmt.Appendf(nil, "%s\r\n%s\r\n", strings.Join(append(head, m.sizes...), " "), m.payload))
	if c.down.size+len(c.unread) > maxPending {
		c.tell("-ERR 'Slow Consumer'")
		c.end()
	}
}

// nobody says that nobody subscribes to the subject of a message.
func (c *conn) nobody(m message) {
	reply := strings.Split(m.reply, ".")
	for _, sub := range c.subs {
		if sub.queue == "" && sub.matches(reply) {
			head := fmt.Sprintf("NATS/1.0 503\r\nNats-Subject: %s\r\n\r\n", m.subject)
			c.hand(sub, message{subject: m.reply, sizes: []string{fmt.Sprint(len(head)), fmt.Sprint(len(head))}, payload: []byte(head)})
			return
		}
	}
}
