package repotest

import (
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/leases"
)

// What the pages, the comments and the flags say of the default lease is what package leases has.
func TestDefaultLease(t *testing.T) {
	for file, says := range map[string]string{
		"docs/operating.md":                  "`Config.Lease` is the same in all members, and (.*) seconds by default",
		"docs/tool.md":                       "after `--lease`, (.*) seconds by default",
		"README.md":                          "a lease(?: of|:) (.*?) s(?:econds)?\\b",
		"docs/questions.md":                  "With a default lease of (.*) s,",
		"docs/performance.md":                "the default, and a lease of (.*) seconds",
		"node/node.go":                       "0 means (.*) s\\.",
		"store/storelock/lock.go":            "0 is (.*) s\\.",
		"cmd/dmutex/internal/run/run.go":     `DMUTEX_LEASE" default:"(.*?)s"`,
		"cmd/dmutex/internal/serve/serve.go": `DMUTEX_LEASE" default:"(.*?)s"`,
	} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		found := regexp.MustCompile(says).FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, found, "%s: %s", file, says)
		for _, match := range found {
			d, err := time.ParseDuration(match[1] + "s")
			require.NoError(t, err)
			assert.Equal(t, time.Duration(leases.Default), d, "%s: package leases has another default than %q; what was measured with it, measure again", file, match[0])
		}
	}
}

// The page of the times of a lease, and what members do by it, have the shares of package leases.
func TestLeaseShares(t *testing.T) {
	wait := leases.Drain(leases.Default)/1_000_000_000 + 1 // seconds: a run that waits so long gets the lock of a dead one
	for file, says := range map[string][]string{
		"docs/operating.md": {
			fmt.Sprintf("| each member contacts the store every | %.1f s | %.1f s | %.0f s |", 2./leases.Renew, 10./leases.Renew, 30./leases.Renew),
		},
		"docs/tool.md":                   {fmt.Sprintf("`-w %d` suits the default lease", wait)},
		"cmd/dmutex/internal/run/run.go": {fmt.Sprintf("with a lease of %ds, give --wait %d.", leases.Default/1_000_000_000, wait)},
		"docs/modes.md": {
			fmt.Sprintf("| every 1/%d of a lease | it is renewed, by a member that serves clients every 1/%d |", leases.Renew, leases.RenewServing),
			fmt.Sprintf("| 2/%d without a renewal |", leases.Renew),
			fmt.Sprintf("| %d/%d | what is held is lost", leases.Margin-1, leases.Margin),
			fmt.Sprintf("The last 1/%d is time to stop", leases.Margin),
			fmt.Sprintf("| %.2f leases after", float64(leases.Drain(leases.Default))/leases.Default),
			fmt.Sprintf("| silent for 1/%d of a lease |", leases.Away),
			fmt.Sprintf("| 1/%d later, up to a whole lease", leases.Exclude),
		},
	} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, say := range says {
			require.Contains(t, string(text), say, file)
		}
	}
}
