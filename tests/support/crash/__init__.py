"""Power cuts and failing disks for everything that writes through a ``WritableFileSystem``.

::

    the store ──► FaultyFileSystem ──► RecordingFileSystem ──► MemoryFileSystem
                  faults: the n-th      recorder: every call      memory_fs: the disk
                  call fails            that changes, and marks
                                             │
                                             ▼
    recovery  ◄── MemoryFileSystem  ◄── states: each disk that a power cut may leave, for each point of the recording

``campaign`` runs a workload and judges each of these disks by the promises that ``promises`` states.
"""
