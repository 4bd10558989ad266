from .source import SegmentLogDataSource as SegmentLogDataSource
