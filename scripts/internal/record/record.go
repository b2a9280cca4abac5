// Package record is how the commands peers and floor hand their measurements to the command report: as lines of JSON.
package record

// A Record is one measured pass of one side, or, if Text is set, something said in words, such as why there is none. The
// n-th record of each side is from the same round: these are compared.
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

// Side is between the two parts of Who where a comparison is of two sides, ours and theirs.
const Side = ": "
