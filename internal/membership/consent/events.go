package consent

// The events of a [Machine], beside those of package membership.
type (
	// Doubted tells that this life is told that the others go on without it: nothing is granted until
	// it is Trusted or Ended.
	Doubted struct{}

	// Trusted tells that a member has contradicted.
	Trusted struct{}

	// Ended tells that the part of this life is over, by Phase: Left, Older or Stopped. Later is, of one
	// that is Older or Stopped, the later life of its number, 0 if it was evicted.
	Ended struct {
		Phase Phase
		Later uint64
	}
)
