// Package record has the measured passes that the command bench prints, keeps and makes tables of.
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

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

// Write writes records for Read.
func Write(w io.Writer, records ...Record) error {
	enc := json.NewEncoder(w)
	for _, r := range records {
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// Read returns an error if there is anything but records.
func Read(from io.Reader) (records []Record, err error) {
	dec := json.NewDecoder(from)
	dec.DisallowUnknownFields()
	for {
		var r Record
		err := dec.Decode(&r)
		if errors.Is(err, io.EOF) {
			return records, nil
		}
		if err == nil && r.Table == "" {
			err = errors.New("not a record")
		}
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", len(records)+1, err)
		}
		records = append(records, r)
	}
}
