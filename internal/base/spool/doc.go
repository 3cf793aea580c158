// Package spool keeps frames in append-only files until they are no longer needed: a log on disk.
//
// A Spool has a directory of its own and many streams, which have names. A Stream is a sequence of chains. Begin starts a chain
// and gives it metadata that the spool does not read; Append adds frames, which are bytes with consecutive numbers from 1 on;
// Flush makes them readable and, if asked, durable. A Reader reads frames in order, from any number on. Trim, TrimBefore and Drop
// delete what is no longer needed.
//
// A spool is for data that can be had in another way, at a price. So damage is no reason to stop: what is lost is named by a
// BrokenError, and what is behind it can be read. Nothing is repaired.
//
// # Promises
//
//   - After a crash, all frames are there that a Flush with sync has confirmed, and no frame that was not appended.
//   - Frames behind them may be there, too: a prefix of what was appended.
//   - A reader returns frames in order without omissions, or a BrokenError that says which number is missing.
//   - If a write fails, the stream fails: it accepts frames again after Begin, in another chain.
//
// # Files
//
// The directory has the file LOCK and segments. A segment belongs to one stream. Its name is the start of the SHA-256 of the
// stream's name (32 hexadecimal digits), "-", the number of its first frame (16 hexadecimal digits) and ".spool". Other files are
// not touched. A segment is written by one Spool only: after Open, appending begins another one. Numbers are big-endian.
//
//	segment                   a header, blocks, and an end if it was ended in order
//
//	header    7 bytes         "kbspool"
//	          1               version of the format: 1
//	          4               length of the fields up to the checksum
//	          8               number of the segment's first frame
//	          8               number of the first frame of its chain
//	          8               time of the first append, Unix milliseconds
//	          1, 16, 16       1 if the blocks are sealed; salt; check of the key
//	          4               length of the stream's name
//	          ...             the stream's name, then the metadata of the chain
//	          4               CRC-32C of all of the header before it
//
//	block     4               "kbsb"
//	          4               length of the data
//	          4               length of the frames when they are unpacked
//	          4               number of frames
//	          8               number of the first frame
//	          8               time of writing, Unix milliseconds
//	          8               offset up to which the file was synced before
//	          4               CRC-32C of the data
//	          4               CRC-32C of the file's name and of the fields before it
//	          ...             data: frames, packed with zstd unless that makes them longer, then sealed
//
//	frame     1 to 5          length (unsigned varint)
//	          ...             payload
//
//	end       48              a block with no frames and no data. Its number is that behind the last frame. It is written
//	                          when all before it was synced.
//
// # Encryption
//
// With Options.Key, blocks are sealed with AES-256-GCM. The key of a segment is derived from the spool's key and the salt with
// HKDF-SHA-256. The nonce is the number of the block in the segment. Associated data are the SHA-256 of the header, which names
// stream, first frame and metadata, and the fields of the block before its checksums. So blocks cannot be forged or moved; that whole
// segments were removed at the start or the end of a stream is not noticed. Names of streams, metadata, times, sizes and numbers are not
// encrypted.
package spool
