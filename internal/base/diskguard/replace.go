package diskguard

import (
	"errors"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ReplaceFile is [Replace] on the disks of this machine. The temporary file is name with ".new".
func ReplaceFile(name string, content []byte) error {
	return Replace(vfs.Default, name, name+".new", content)
}

// Replace replaces a file durably: after a crash, it has the former content or the new one. Only its owner can access it. temporary is another
// name in the same directory, which the caller uses for nothing else.
func Replace(base vfs.FS, name, temporary string, content []byte) error {
	f, err := base.Create(temporary, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	err = Private(base, temporary)
	if err == nil {
		_, err = f.Write(content)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := base.Rename(temporary, name); err != nil {
		return err
	}
	directory, err := base.OpenDir(base.PathDir(name))
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
