package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// A target bounds one figure by another.
type target struct {
	figure, system   string
	baseFigure, base string
	factor           float64
	least            bool // the ratio must be at least the factor, not at most

	// hop is the time of one more process on the way, which is added to the base. It is the time of
	// the first wire, minus the time of the second if there is one.
	hop []string
}

// targets are those that this program can measure.
var targets = []target{
	{figAcquire, centralTCP, figAcquire, bare, 1.25, false, nil},
	{figRelease, centralTCP, figRelease, bare, 1.5, false, nil},
	{figAcquire, ricart2, figAcquire, rawFan2, 1.3, false, nil},
	{figAcquire, ricart7, figAcquire, rawFan7, 1.3, false, nil},
	{figHandOver, centralTCP, figHandOver, bare, 1.25, false, nil},
	{figHandOff, centralTCP, figHandOff, bare, 1.25, false, nil},
	{figHandOver, ricartTCP, figHandOver, rawHop, 1.5, false, nil},
	{figHandOver, suzukiTCP, figHandOver, rawHop, 1.5, false, nil},
	{figGrants, centralTCP, figGrants, bare, 0.85, true, nil},
	{figGrants, centralTCP, figGrants, postgres, 1.3, true, nil},
	{figFairness, centralTCP, "", "", 0.999, true, nil},
	{figCycle, centralOwn, "", "", 0.5, false, nil},
	{figCycle, suzukiHome, "", "", 0.5, false, nil},
	{figCycle, ringHome, "", "", 0.5, false, nil},
	{figCycle, carvalho, "", "", 0.5, false, nil},
	{figAcquire, centralNATS, figAcquire, rawRequest, 1.2, false, nil},
	{figGrants2, centralNATS, figGrants2, natsKV, 8, true, nil},
	{figGrants3, centralNATS, figGrants3, natsKV, 8, true, nil},
	{figGrants, centralNATS, figGrants, natsKV, 8, true, nil},
	{figMany, centralTCP, figMany, bare, 1, true, nil},
	{figCycle, clientTCP, figCycle, memberTCP, 1.3, false, []string{rawTCP}},
	{figCycle, clientTCP, figCycle, memberTCP, 1.3, false, []string{rawRelay, rawTCP}},
	{figCycle, clientNATS, figCycle, memberNATS, 1.3, false, []string{rawRequest}},
	{figCycle, clientNATS, figCycle, memberNATS, 1.3, false, []string{rawRelayNATS, rawRequest}},
	{figLoad, centralAll, "", "", 1.1, false, nil},
}

// ratio returns the median of the ratios within each round; without a base, the median of
// the figure.
func (t target) ratio(r results) (ratio float64, ok bool) {
	values, bases := r[t.figure][t.system], r[t.baseFigure][t.base]
	if len(values) == 0 || t.base != "" && len(bases) == 0 {
		return 0, false
	}
	if t.base == "" {
		return median(values), true
	}
	bases = slices.Clone(bases)
	for i, wire := range t.hop {
		taken := r[figAcquire][wire]
		if len(taken) == 0 {
			return 0, false
		}
		for round := range bases {
			if i == 0 {
				bases[round] += taken[round]
			} else {
				bases[round] -= taken[round]
			}
		}
	}
	return median(ratios(values, bases)), true
}

func ratios(values, bases []float64) []float64 {
	list := make([]float64, len(values))
	for i := range list {
		list[i] = values[i] / bases[i]
	}
	return list
}

// String returns the bound, such as "at most 1.2 x bare coordinator".
func (t target) String() string {
	word := "at most"
	if t.least {
		word = "at least"
	}
	if t.base == "" {
		return fmt.Sprintf("%s %g", word, t.factor)
	}
	if len(t.hop) > 0 {
		return fmt.Sprintf("%s %g x (%s + %s)", word, t.factor, t.base, strings.Join(t.hop, " - "))
	}
	return fmt.Sprintf("%s %g x %s", word, t.factor, t.base)
}

func (t target) verdict(ratio float64) string {
	by := ratio/t.factor - 1
	if t.least {
		by = -by
	}
	if by <= 0 {
		return "met"
	}
	return fmt.Sprintf("missed by %.0f%%", max(1, 100*by))
}

// report writes the tables: each figure of each system, with its ratio to the
// bare coordinator if that has the figure, and the targets.
func report(w io.Writer, r results, absent []string) {
	for _, figure := range figures {
		systems := sorted(r[figure])
		if len(systems) == 0 {
			continue
		}
		fmt.Fprintf(w, "| %s | median | x bare coordinator |\n|---|---:|---:|\n", figure)
		for _, s := range systems {
			relative := ""
			if bases := r[figure][bare]; len(bases) > 0 && figure != figFairness {
				relative = fmt.Sprintf("%.2f", median(ratios(r[figure][s], bases)))
			}
			fmt.Fprintf(w, "| %s | %.4g | %s |\n", s, median(r[figure][s]), relative)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "| what | system | target | measured | |\n|---|---|---|---:|---|\n")
	for _, t := range targets {
		measured, verdict := "", "not measured"
		if ratio, ok := t.ratio(r); ok {
			measured, verdict = fmt.Sprintf("%.3g", ratio), t.verdict(ratio)
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", t.figure, t.system, t, measured, verdict)
	}
	if len(absent) > 0 {
		fmt.Fprintf(w, "\nAbsent: %s.\n", strings.Join(absent, "; "))
	}
}

// sorted returns the systems of a figure in the order of their medians.
func sorted(bySystem map[string][]float64) []string {
	return slices.SortedFunc(maps.Keys(bySystem), func(a, b string) int {
		return cmp.Or(cmp.Compare(median(bySystem[a]), median(bySystem[b])), cmp.Compare(a, b))
	})
}
