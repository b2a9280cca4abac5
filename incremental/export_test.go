package incremental

import "time"

// Settled is settled in tests: longer than a step of the clock of the file systems that they run on.
const Settled = 50 * time.Millisecond

func init() { settled = Settled }

// SaveAlways makes a run save after each file that it keeps, until the function that it returns is called.
func SaveAlways() (end func()) {
	saveEvery = -1
	return func() { saveEvery = 30 * time.Second }
}
