// Package datafile reads and replaces the files in the data directory that contain people's input.
package datafile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/sibyl-trace/sibyl/internal/durable"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// Read decodes the JSON file at path into x. If the file doesn't exist, Read leaves x unchanged and returns nil.
func Read(path string, x any) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, x)
	}
	if err != nil {
		return Unreadable(path, err)
	}
	return nil
}

// Unreadable returns an error saying that the file at path is unusable because of err, and how to recover.
func Unreadable(path string, err error) error {
	return fmt.Errorf("read %s: %w: restore the file from a backup, or move it away (mv %[1]s %[1]s.aside) "+
		"and start again without its contents", path, err)
}

// Replace replaces the file at path with x encoded as JSON; see [durable.Replace]. The error is a refusal if the disk
// is full.
func Replace(path string, x any) error {
	data, err := json.Marshal(x)
	if err == nil {
		err = durable.Replace(path, data)
	}
	if err != nil {
		return notStored(err)
	}
	return nil
}

// notStored returns the error for a file that couldn't be written because of err: a refusal if the disk is full.
func notStored(err error) error {
	if durable.Full(err) {
		return refusal.New(refusal.Overloaded, "the disk is full",
			"free space on the disk of the data directory").Later(2 * time.Second)
	}
	return fmt.Errorf("store: %w", err)
}
