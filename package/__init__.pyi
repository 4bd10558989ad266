from .api.follow import Follow as Follow
from .api.lookup import Lookup as Lookup
from .api.positions import Time as Time
from .api.scan import Scan as Scan
from .api.store import Store as Store
from .api.store import open as open

__version__: str
