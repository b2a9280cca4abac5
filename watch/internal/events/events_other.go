//go:build !linux && !windows

package events

import "context"

// A Source is what Open returns.
type Source struct{ pending *pending }

// Open fails with ErrUnsupported.
func Open(string) (*Source, error) { return nil, ErrUnsupported }

func (s *Source) Add(string) error           { return ErrUnsupported }
func (s *Source) Drop(string)                {}
func (s *Source) Moved() bool                { return false }
func (s *Source) Sync(context.Context) error { return ErrUnsupported }
func (s *Source) Close() error               { return nil }
