// Package quorum builds, checks and compares coteries.
package quorum

// Cmd is dmutex quorum.
type Cmd struct {
	Build   buildCmd   `cmd:"" help:"Print the quorums of a construction."`
	Check   checkCmd   `cmd:"" help:"Say whether a file is a coterie, what is wrong if not, and what it is worth."`
	Compare compareCmd `cmd:"" help:"Compare all constructions for a number of sites."`
}

// Help is the text of quorum --help.
func (Cmd) Help() string {
	return `A quorum is a group of sites that may act for all. In a coterie, a set of quorums, any two quorums share a site, ` +
		`so that no two can act at once, and no quorum contains another.`
}
