// Package record defines the lines of JSON in which the commands peers and floor pass measurements to the command report.
package record

// A Record is one measured pass of one side, or, if Text is set, a message, such as why there is no measurement. The n-th
// records of all sides are from the same round and are compared with each other.
type Record struct {
	Table   string
	Data    string  // the set, such as flat_100k
	Who     string  // the side
	Version string  `json:",omitempty"` // of the side
	Files   int     // processed in the pass
	Wall    float64 // nanoseconds
	CPU     float64 // nanoseconds, user and system; 0 where it is not known
	Text    string  `json:",omitempty"`
}

// Side separates the name of a comparison in Who from its side, "ours" or "theirs".
const Side = ": "
