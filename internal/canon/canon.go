// Package canon has what the machines' texts, and their lists of members, have in
// common. Texts are canonical: what is zero, empty or false is left out.
package canon

import (
	"errors"
	"slices"
	"strconv"
)

// Number appends name and v, unless v is 0.
func Number(b []byte, name string, v uint64) []byte {
	if v == 0 {
		return b
	}
	return strconv.AppendUint(append(b, name...), v, 10)
}

// Kind returns the name of a kind, names being those from 1 on.
func Kind[T ~uint8](k T, names ...string) string {
	if 0 < k && int(k) <= len(names) {
		return names[k-1]
	}
	return "KIND" + strconv.Itoa(int(k))
}

// Way appends the beginning of a message, such as "1->2 REQUEST".
func Way[T ~uint64](b []byte, from, to T, kind string) []byte {
	b = strconv.AppendUint(b, uint64(from), 10)
	b = strconv.AppendUint(append(b, "->"...), uint64(to), 10)
	return append(append(b, ' '), kind...)
}

// Flag appends name if it is set.
func Flag(b []byte, name string, set bool) []byte {
	if set {
		b = append(b, name...)
	}
	return b
}

// List appends name and the numbers of a list with commas between them.
func List[T ~uint64](b []byte, name string, list []T) []byte {
	for _, v := range list {
		b = strconv.AppendUint(append(b, name...), uint64(v), 10)
		name = ","
	}
	return b
}

// Set is List of those members whose place is in a set.
func Set[T ~uint64](b []byte, name string, members []T, set []bool) []byte {
	for place, in := range set {
		if in {
			b = strconv.AppendUint(append(b, name...), uint64(members[place]), 10)
			name = ","
		}
	}
	return b
}

// Members returns the members in ascending order and the place of self. It refuses
// member 0, a member that is named twice, and a self that is not among them. The error
// speaks of the fields Members and Self of what is given, such as "Start."
func Members[T ~uint64](of string, list []T, self T) (members []T, place int, err error) {
	members = slices.Sorted(slices.Values(list))
	place, found := slices.BinarySearch(members, self)
	switch {
	case len(members) > 0 && members[0] == 0:
		return nil, 0, errors.New(of + "Members contains 0, which names nobody: number nodes from 1")
	case len(slices.Compact(slices.Clone(members))) < len(members):
		return nil, 0, errors.New(of + "Members names a node twice")
	case !found:
		return nil, 0, errors.New(of + "Self " + strconv.FormatUint(uint64(self), 10) + " is not among " + of + "Members")
	}
	return members, place, nil
}
