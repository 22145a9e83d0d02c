package weights

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"google.golang.org/protobuf/proto"

	"github.com/wardrop-lb/wardrop/api"
	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
)

// A saved snapshot is this line, the xxHash64 of the rest in eight bytes, and a
// protobuf message.
const header = "wardrop snapshot 1\n"

// ErrSetAside reports a saved snapshot that could not be trusted. The file was
// renamed, so that it can be looked at, and the data plane starts without one.
var ErrSetAside = errors.New("saved snapshot set aside")

// store writes atomically: after a crash the old file or the new one is there,
// whole.
func store(path string, p *pb.Saved) error {
	body, err := proto.Marshal(p)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	data := binary.LittleEndian.AppendUint64([]byte(header), api.Digest(body))
	if err := renameio.WriteFile(path, append(data, body...), 0o600); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes a rename durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// load reads a saved snapshot; nil without an error when there is none.
func load(path string) (*pb.Saved, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p, err := parse(data)
	if err != nil {
		return nil, setAside(path, err)
	}
	return p, nil
}

func parse(data []byte) (*pb.Saved, error) {
	rest, ok := bytes.CutPrefix(data, []byte(header))
	if !ok || len(rest) < 8 {
		return nil, errors.New("it does not begin like a saved snapshot")
	}
	if binary.LittleEndian.Uint64(rest) != api.Digest(rest[8:]) {
		return nil, errors.New("its checksum does not match")
	}
	var p pb.Saved
	if err := proto.Unmarshal(rest[8:], &p); err != nil {
		return nil, err
	}
	return &p, nil
}

// setAside renames a file that cannot be trusted and says so.
func setAside(path string, reason error) error {
	aside := path + ".corrupt"
	for i := 1; ; i++ {
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			break
		}
		aside = fmt.Sprintf("%s.corrupt-%d", path, i)
	}
	if err := os.Rename(path, aside); err != nil {
		return fmt.Errorf("%s cannot be trusted (%w) nor set aside: %w", path, reason, err)
	}
	return fmt.Errorf("%w: %s is %s: %w", ErrSetAside, path, aside, reason)
}
