package protect

// State is what an engine is found to do with its work, by what comes of it.
type State uint8

const (
	// Live is an engine of which nothing bad is known.
	Live State = iota
	// BlackHole has work and nothing of it moves.
	BlackHole
	// Livelock makes steps or preempts, and no token comes of it.
	Livelock
	// DeadStreams works, but what it owes here does not arrive: the way is dead.
	DeadStreams
	// Doubtful finishes nothing, and has no counters that would say why.
	Doubtful
	// Draining is well and takes nothing new.
	Draining
	// Loading has not got its model yet.
	Loading
	// Restarting was there and refuses connections, or has just begun anew.
	Restarting

	numStates
)

var stateNames = [numStates]string{
	"live", "black hole", "livelock", "dead streams", "doubtful", "draining", "loading", "restarting",
}

func (s State) String() string { return stateNames[s] }

// ParseState finds a state by its name; false for one that is not known, as a newer
// data plane may tell of.
func ParseState(name string) (State, bool) {
	for s, n := range stateNames {
		if n == name {
			return State(s), true
		}
	}
	return Live, false
}

// TakesNothing tells of the states in which an engine serves nobody, wherever the
// request comes from.
func (s State) TakesNothing() bool {
	return s == BlackHole || s == Livelock || s == Draining || s == Loading
}

// Mark is a state that an engine was found in. It is a lease: it ends by itself.
type Mark struct {
	State  State
	Reason string
	Since  int64 // nanoseconds
	Until  int64 // nanoseconds
	// Own says that the mark rests on the finder's own requests alone, so that it may
	// be the way to the engine that is dead.
	Own bool
}

// In tells whether the mark is in force.
func (m *Mark) In(now int64) bool { return m.State != Live && now < m.Until }
