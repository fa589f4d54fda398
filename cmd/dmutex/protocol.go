package main

import (
	"time"

	"github.com/dmutex/dmutex"
)

// A demo and its processes talk in lines of JSON: orders to a process's
// standard input, reports from its standard output. A run goes
//
//	hire      ->   the task
//	          <-   address     where its link listens
//	open      ->   the address book
//	          <-   ready       all have met
//	begin     ->
//	          <-   progress    again and again
//	          <-   done        with the records of all deposits
//	count     ->               again, until no message is under way
//	          <-   counts
//	leave     ->               and it closes its node and exits
//
// Philosophers have more words at each meal, so that all of them have one fork
// before anybody wants the second, and progress when they have eaten.
//
//	sit       ->               all have eaten
//	          <-   seated      with the left fork
//	reach     ->               for the right one
//	          <-   circle      of which it is the victim
//	rise      ->               after the last one; done is the answer
//
// Until it is told to leave a process goes on answering the others. When its
// standard input ends it exits: a dead demo leaves nobody behind.
type order struct {
	Word  string                   `json:"word"`
	Task  *task                    `json:"task,omitempty"`
	Peers map[dmutex.NodeID]string `json:"peers,omitempty"`
}

type report struct {
	Word    string   `json:"word"`
	Address string   `json:"address,omitempty"`
	Made    int      `json:"made,omitempty"` // deposits or meals so far
	Records []record `json:"records,omitempty"`
	Counts  *counts  `json:"counts,omitempty"`
	Circle  circle   `json:"circle,omitempty"`
	Supper  *supper  `json:"supper,omitempty"`
}

// The words of orders and of reports.
const (
	wordHire     = "hire"
	wordAddress  = "address"
	wordOpen     = "open"
	wordReady    = "ready"
	wordBegin    = "begin"
	wordProgress = "progress"
	wordDone     = "done"
	wordCount    = "count"
	wordCounts   = "counts"
	wordLeave    = "leave"

	wordSit    = "sit"
	wordSeated = "seated"
	wordReach  = "reach"
	wordCircle = "circle"
	wordRise   = "rise"
)

// A task is what a process is told on its first day.
type task struct {
	Trade     string        `json:"trade"` // what it is: the name of its command
	Self      dmutex.NodeID `json:"self"`
	Nodes     int           `json:"nodes"` // they are numbered from 1
	Algorithm string        `json:"algorithm"`
	Link      string        `json:"link"`
	NatsURL   string        `json:"nats_url,omitempty"`
	Prefix    string        `json:"prefix"`          // of NATS subjects; one for each run
	Dir       string        `json:"dir"`             // where the account is
	Trace     string        `json:"trace,omitempty"` // the directory for traces, if there are to be any
	Deposits  int           `json:"deposits,omitempty"`
	Think     time.Duration `json:"think"`

	// Of a philosopher.
	Meals  int           `json:"meals,omitempty"`
	Detect time.Duration `json:"detect,omitempty"` // how long a wait is before a circle is looked for; 0 is never
}

// A record is one deposit. Its times are nanoseconds of the wall clock, which
// the processes of one machine share.
type record struct {
	Fence   uint64 `json:"fence,omitempty"`
	Called  int64  `json:"called"`  // Acquire was called,
	Granted int64  `json:"granted"` // it returned,
	Left    int64  `json:"left"`    // and Release was called
	Overlap bool   `json:"overlap,omitempty"`
	Stale   bool   `json:"stale,omitempty"`
}

// counts are the messages of the algorithm at one node, by kind, and the locks
// that it holds or waits for.
type counts struct {
	Sent     [dmutex.Kinds]uint64 `json:"sent"`
	Received [dmutex.Kinds]uint64 `json:"received"`
	Busy     int                  `json:"busy"`
}
