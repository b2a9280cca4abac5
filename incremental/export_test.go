package incremental

import "time"

// Settled is settled in tests: longer than a step of the clock of the file systems that they run on.
const Settled = 50 * time.Millisecond

func init() { settled = Settled }
